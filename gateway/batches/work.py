"""The folder in which the batches of a machine are run: `batches` in data_dir."""

from __future__ import annotations

import asyncio
from pathlib import Path

from gateway.config.settings import Settings
from gateway.errors import Unavailable
from gateway.files.storage import folder_id


def work_folder(settings: Settings) -> Path:
    """The folder; each batch that runs has one in it, named like the batch."""
    return settings.data_dir / "batches"


async def work_place(settings: Settings) -> str:
    """The id of the folder; Unavailable."""
    try:
        return await asyncio.to_thread(folder_id, work_folder(settings))
    except OSError as error:
        raise Unavailable("Batches cannot be run at the moment", detail=f"batches: {error}") from None
