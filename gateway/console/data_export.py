"""The file of what is stored about a person."""

from __future__ import annotations

from gateway.console.json_file import json_file
from gateway.console.replies import Download
from gateway.console.visit import Visit


async def export_file(visit: Visit, user_id: str, name: str) -> Download:
    """The JSON file `name` of a user; errors as of `PersonalData.export`."""
    document = await (await visit.people()).personal_data.export(visit.actor, user_id)
    return await json_file(name, lambda: document)
