"""The file of what is stored about a person, and how many of them are made at a time."""

from __future__ import annotations

from gateway.console.json_file import json_file
from gateway.console.replies import Download
from gateway.console.route import Limit
from gateway.console.visit import Visit

#: Exports share the thread of long queries with reports.
LIMIT = Limit(
    name="export",
    most=1,
    refusal="You have an export of personal data under way; wait for it",
    most_of_site=3,
    site_refusal="Others have exports of personal data under way; try again in a minute",
)


async def export_file(visit: Visit, user_id: str, name: str) -> Download:
    """The JSON file `name` of a user; errors as of `PersonalData.export`."""
    document = await (await visit.people()).personal_data.export(visit.actor, user_id)
    return await json_file(name, lambda: document)
