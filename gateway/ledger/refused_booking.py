"""Books an entry of `refused.jsonl`, without a double charge: the store charges a request once.

For an entry that is older than the store's marker of its request, the ledger is searched. Lines that were moved to
archives are searched there.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

from msgspec import structs

from gateway.ledger.entry import Entry
from gateway.ledger.line import LedgerLine
from gateway.ledger.settlement_writer import SettlementWriter

INCOMPLETE = "the archives do not have all lines of the account"


async def book_refused(
    writer: SettlementWriter, entry: Entry, lines: AsyncIterator[LedgerLine] | None, *, searched: bool
) -> str:
    """Book the entry; returns "", or why it is refused again. StoreUnavailable if the store is.

    `lines`: all lines of the account from the first on, if some of them are in archives. `searched`: no line of the
    request is in the database.
    """
    if lines is None:
        return await writer.send(structs.replace(entry, force=int(searched)))
    number = 0
    async for line in lines:
        number += 1
        if line.n != number:
            return INCOMPLETE
        if line.request_id == entry.request_id:
            return ""
    return await writer.send(structs.replace(entry, force=1))
