"""JSON documents as files that the browser saves."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from gateway.console.replies import Download
from gateway.console.visit import Visit
from gateway.web.piecewise import pieces_of
from gateway.web.work_threads import LONG


async def json_file(name: str, text: Callable[[], bytes]) -> Download:
    """The file `name` with a JSON text, which is made and indented in a thread before anything is sent."""
    content = await LONG.run(lambda: msgspec.json.format(text()))
    return Download(name, "application/json", pieces_of(content))


async def export_file(visit: Visit, user_id: str, name: str) -> Download:
    """The JSON file `name` of a user; errors as of `PersonalData.export`."""
    document = await (await visit.people()).personal_data.export(visit.actor, user_id)
    return await json_file(name, lambda: msgspec.json.encode(document))
