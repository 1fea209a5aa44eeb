"""Lists of the calls of an account: members see their own, owners and readers all."""

from __future__ import annotations

from msgspec import structs

from gateway.admin.actor import Actor
from gateway.admin.reports import restricted
from gateway.admin.transactions import Transactions
from gateway.errors import InvalidValue
from gateway.history.call_pages import CallFilter, CallRow, read_calls

MOST = 10_000  # calls at once


class CallLists:
    """Reads them from the database, where a call is within a second after its end."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self, actor: Actor, wanted: CallFilter, *, limit: int) -> list[CallRow]:
        """At most `limit` calls, the newest first. Forbidden; InvalidValue for an impossible range."""
        if not wanted.since < wanted.until:
            raise InvalidValue("The range must end after its beginning", param="to")
        filters = {"account": [wanted.account], **({"user": [wanted.user]} if wanted.user else {})}
        [user] = restricted(actor, filters).get("user", [""])
        return await self._transactions.read(read_calls, structs.replace(wanted, user=user), limit=min(limit, MOST))
