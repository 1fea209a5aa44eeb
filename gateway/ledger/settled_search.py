"""Finds in the ledger which requests of an account are settled, for entries whose markers may have expired."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.ledger.archive_checkpoint import read_archive_checkpoint
from gateway.ledger.line import read_lines
from gateway.ledger.scripts import Links


async def search_settled(links: Links, account: str, admitted: Mapping[str, int]) -> dict[str, bool | None]:
    """By request id, whether the request has a line; None if lines since its admission have left the store.

    `admitted` are the times of the admissions, in microseconds. The lines are read once for all requests.
    """
    if not admitted:
        return {}
    missing = set(admitted)
    async for line in read_lines(links, account, since=str(min(admitted.values()) // 1000)):
        missing.discard(line.request_id)
        if not missing:
            break
    answers: dict[str, bool | None] = dict.fromkeys(admitted, True)
    if missing:
        # Read after the lines, so that lines moved in between are not mistaken for lines that never existed.
        left = (await read_archive_checkpoint(links, account)).milliseconds
        answers |= {request_id: None if admitted[request_id] // 1000 <= left else False for request_id in missing}
    return answers
