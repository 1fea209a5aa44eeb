"""The files of a batch: its input is copied to the folder of its work, its results become files of its account."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from gateway.batches.batch import Batch
from gateway.batches.records import BatchRecords
from gateway.batches.results import ResultLog
from gateway.config.settings import Settings
from gateway.config.values import duration
from gateway.errors import NotFound
from gateway.files.chosen import chosen_storage
from gateway.files.records import FileRecords, StoredFile
from gateway.files.storage import PIECE, pieces_of

OUTPUT, ERRORS = "output", "errors"
PURPOSE = "batch_output"


class BatchFiles:
    """The records and the storage that runs of batches use."""

    def __init__(self, records: BatchRecords, files: FileRecords, settings: Settings) -> None:
        self.records = records
        self.files = files
        self.storage = chosen_storage(settings)
        self._keep = int(duration(settings.files.keep).total_seconds())

    async def fetch_input(self, batch: Batch, path: Path) -> Path:
        """Copy the input of a batch, if an earlier process has not; NotFound if it was deleted."""
        if await asyncio.to_thread(path.exists):
            return path
        await self.files.find(batch.account, batch.input_file_id)
        content = await self.storage.open(batch.input_file_id)
        if content is None:
            raise NotFound("The content of the input file is not on this machine")
        draft = path.with_suffix(".new")
        try:
            with draft.open("wb") as file:
                async with aclosing(pieces_of(content)) as pieces:
                    async for piece in pieces:
                        await asyncio.to_thread(file.write, piece)
        finally:
            await content.close()
        draft.rename(path)
        return path

    async def write_results(self, batch: Batch, folder: Path) -> None:
        """Make the files of the results; again if an earlier process did not end it."""
        paths = {OUTPUT: folder / "output.jsonl", ERRORS: folder / "errors.jsonl"}
        await asyncio.to_thread(_split, folder / "results.jsonl", paths[OUTPUT], paths[ERRORS])
        batch.output_file_id = await self._store(batch, OUTPUT, paths[OUTPUT])
        batch.error_file_id = await self._store(batch, ERRORS, paths[ERRORS])

    async def _store(self, batch: Batch, kind: str, path: Path) -> str | None:
        """The id of the file, which follows from that of the batch; None if there is nothing in it."""
        size = (await asyncio.to_thread(path.stat)).st_size
        if not size:
            return None
        file_id = f"file-{hashlib.sha256(f'{batch.id} {kind}'.encode()).hexdigest()[:32]}"
        now, place = int(time.time()), await self.storage.place()
        expires_at = now + (batch.output_expires_after or self._keep)
        file = StoredFile(file_id, size, now, expires_at, f"{batch.id}_{kind}.jsonl", PURPOSE, place, batch.user)
        await self.files.announce(batch.account, file_id, place=place, expires_at=expires_at)
        async with aclosing(_pieces(path)) as pieces:
            await self.storage.save(file_id, pieces)
        await self.files.add(batch.account, file)
        return file_id


def _split(results: Path, output: Path, errors: Path) -> None:
    log, _ = ResultLog.open(results)
    try:
        with output.open("wb") as good, errors.open("wb") as bad:
            for result in log.results():
                (good if result.is_ok else bad).write(bytes(result.line) + b"\n")
    finally:
        log.close()


async def _pieces(path: Path) -> AsyncGenerator[bytes]:
    with path.open("rb") as file:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece
