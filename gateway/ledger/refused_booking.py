"""Books entries of `refused.jsonl`, without a double charge: the store charges a request once.

For entries that are older than the store's markers of their requests, the ledger is searched. Lines that were moved to
archives are searched there. The lines of an account are read once for all its entries.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence

from msgspec import structs

from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.line import LedgerLine
from gateway.ledger.settlement_writer import SettlementWriter, Waiting

INCOMPLETE = "the archives do not have all lines of the account"
AT_ONCE = 512  # entries in flight


async def book_refused(
    writer: SettlementWriter,
    entries: Sequence[Entry],
    lines: AsyncIterator[LedgerLine] | None,
    *,
    searched: Collection[str],
) -> list[str]:
    """Book entries of one account; for each "", or why it is refused again. StoreUnavailable if the store is.

    `lines`: all lines of the account from the first on, if some of them are in archives. `searched`: the requests that
    have no line in the database.
    """
    results: dict[str, str] = {}
    if lines is not None:
        wanted = {entry.request_id for entry in entries}
        settled, is_complete = await _settled(lines, wanted)
        results, searched = dict.fromkeys(settled, ""), wanted
        if not is_complete:
            results |= dict.fromkeys(wanted - settled, INCOMPLETE)
    old: list[Waiting] = []
    unknown = [entry for entry in entries if entry.request_id not in results]
    sent = (writer.send(structs.replace(entry, force=int(entry.request_id in searched)), old=old) for entry in unknown)
    reasons = await gather_bounded(sent, AT_ONCE)
    results |= {entry.request_id: reason for entry, reason in zip(unknown, reasons, strict=True)}
    reasons = await writer.send_old(old)
    results |= {item.entry.request_id: reason for item, reason in zip(old, reasons, strict=True)}
    return [results[entry.request_id] for entry in entries]


async def _settled(lines: AsyncIterator[LedgerLine], wanted: Collection[str]) -> tuple[set[str], bool]:
    """Those of the requests that have a line, and whether the lines have no gap; nothing is read after one."""
    found, number = set[str](), 0
    async for line in lines:
        number += 1
        if line.n != number:
            return found, False
        if line.request_id in wanted:
            found.add(line.request_id)
    return found, True
