"""Lines of the ledger, as tests ask for them."""

from __future__ import annotations

from gateway.ledger import Ledger, LedgerLine


async def last_line(ledger: Ledger, account: str, request_id: str) -> LedgerLine | None:
    """The last line of a request that was settled within a day, found the way a receipt is."""
    found = await ledger.charge_of(account, request_id)
    return found[0] if found else None
