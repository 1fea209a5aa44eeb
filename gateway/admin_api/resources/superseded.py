"""`/superseded-lines`: ledger lines that the database has and the store has lost."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.accounts.accounts import MAX_NOTE
from gateway.admin_api import history_documents as documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.pagination import Cursor, Limit, Page, page, read_cursor
from gateway.admin_api.route import AdminRoute
from gateway.errors import InvalidValue, Unavailable

LONGEST = 300.0  # seconds of a booking; what it has booked by then stays booked

Ids = Annotated[list[Annotated[int, Meta(ge=1, le=2**63 - 1)]], Meta(min_length=1, max_length=1000)]


class OpenLinesQuery(Struct, frozen=True, kw_only=True):
    """The query of the open lines."""

    account: str = ""
    limit: Limit = 100
    cursor: Cursor = ""


class Chosen(Struct, frozen=True, kw_only=True):
    """Which lines: those with these ids, or with `all` every open one, of one account if it is given."""

    ids: Ids | None = None
    all: bool = False
    account: str | None = None


class Acknowledgement(Chosen, frozen=True, kw_only=True):
    """Which lines are closed without a booking, and why."""

    note: Annotated[str, Meta(max_length=MAX_NOTE)] = ""


async def list_(call: AdminCall, query: OpenLinesQuery) -> dict[str, Any]:
    after = read_cursor("superseded", query.cursor, tuple[int]) or (0,)
    lines = await call.services.superseded()
    found = await lines.open_lines(call.actor, account=query.account or None, after=after[0], limit=query.limit + 1)
    shown = found[: query.limit]
    last = [shown[-1].id] if len(found) > query.limit else None
    return page("superseded", [one.json_form() for one in shown], last)


async def book(call: AdminCall, body: Chosen) -> dict[str, Any]:
    _check(body)
    lines = await call.services.superseded()
    try:
        async with asyncio.timeout(LONGEST):
            return (await lines.book(call.actor, body.ids, account=body.account)).json_form()
    except TimeoutError:
        raise Unavailable("The booking takes too long here; run gateway superseded book") from None


async def acknowledge(call: AdminCall, body: Acknowledgement) -> dict[str, Any]:
    _check(body)
    lines = await call.services.superseded()
    return {"acknowledged": await lines.acknowledge(call.actor, body.ids, account=body.account, note=body.note)}


def _check(body: Chosen) -> None:
    if body.all == (body.ids is not None):
        raise InvalidValue("Give either 'ids' or 'all'", param="ids")
    if body.ids is not None and body.account is not None:
        raise InvalidValue("'account' goes with 'all'", param="account")


ROUTES = (
    AdminRoute(
        method="GET",
        path="/superseded-lines",
        access=Access(scope="credits", reads=True),
        summary="List the ledger lines that the store has lost and nothing has booked again",
        function=list_,
        query=OpenLinesQuery,
        answer=Page[documents.SupersededLine],
    ),
    AdminRoute(
        method="POST",
        path="/superseded-lines/book",
        access=Access(scope="credits"),
        summary="Book superseded lines again, each once",
        function=book,
        body=Chosen,
        answer=documents.SupersededBooking,
        writes_store=True,
    ),
    AdminRoute(
        method="POST",
        path="/superseded-lines/acknowledge",
        access=Access(scope="credits"),
        summary="Close superseded lines without booking them",
        function=acknowledge,
        body=Acknowledgement,
        answer=documents.Acknowledged,
    ),
)
