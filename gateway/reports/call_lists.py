"""Lists of the calls of an account: members see their own, owners and readers all."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from msgspec import structs

from gateway.admin.actor import Actor
from gateway.admin.transactions import Transactions
from gateway.errors import InvalidValue
from gateway.history.call_pages import CallFilter, CallRow, read_calls
from gateway.history.call_search import CallSearch, FoundCall, search_calls
from gateway.history.ranked_calls import RankedCalls, ranked_calls
from gateway.ids import to_request_id
from gateway.reports.reports import restricted

MOST = 10_000  # calls at once
PAGE = 500  # calls of one of many pages: others get the thread of the database after each
LONGEST = 400 * 86_400_000_000  # microseconds of a search over all accounts


class CallLists:
    """Reads them from the database, where a call is within a second after its end."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self, actor: Actor, wanted: CallFilter, *, limit: int) -> list[CallRow]:
        """At most `limit` calls, the newest first. Forbidden; InvalidValue for an impossible range."""
        return await self._transactions.read(read_calls, _permitted(actor, wanted), limit=min(limit, MOST))

    async def pages(self, actor: Actor, wanted: CallFilter) -> AsyncGenerator[Sequence[CallRow]]:
        """All of them, in pages; the errors are those of `list`. Each page is a transaction of its own."""
        wanted = _permitted(actor, wanted)
        while page := await self._transactions.read(read_calls, wanted, limit=PAGE):
            yield page
            if len(page) < PAGE:
                return
            wanted = structs.replace(wanted, before=page[-1].seq)

    async def search(self, actor: Actor, wanted: CallSearch, *, limit: int) -> Sequence[FoundCall]:
        """At most `limit` calls of all accounts, the newest first; needs the scope `read` for the site."""
        actor.require("read")
        _check_range(wanted)
        wanted = structs.replace(wanted, request_id=to_request_id(wanted.request_id))
        return await self._transactions.read(search_calls, wanted, limit=min(limit, MOST))

    async def ranked(self, actor: Actor, wanted: CallSearch, *, limit: int) -> RankedCalls:
        """At most `limit` calls with `wanted.order` or a least cost or duration, and from when on they were searched.

        With an account the errors are those of `list`, else those of `search`.
        """
        if wanted.account:
            filters = {"account": [wanted.account], **({"user": [wanted.user]} if wanted.user else {})}
            [user] = restricted(actor, filters).get("user", [""])
            wanted = structs.replace(wanted, user=user)
            if not wanted.since < wanted.until:
                raise InvalidValue("The range must end after its beginning", param="to")
        else:
            actor.require("read")
            _check_range(wanted)
        wanted = structs.replace(wanted, request_id=to_request_id(wanted.request_id))
        return await self._transactions.read(ranked_calls, wanted, limit=min(limit, MOST))


def _check_range(wanted: CallSearch) -> None:
    if not wanted.since < wanted.until <= wanted.since + LONGEST:
        raise InvalidValue("The range must end after its beginning, and at most 400 days later", param="to")


def _permitted(actor: Actor, wanted: CallFilter) -> CallFilter:
    """The filter, with the user to whom the actor is restricted."""
    if not wanted.since < wanted.until:
        raise InvalidValue("The range must end after its beginning", param="to")
    filters = {"account": [wanted.account], **({"user": [wanted.user]} if wanted.user else {})}
    [user] = restricted(actor, filters).get("user", [""])
    return structs.replace(wanted, user=user)
