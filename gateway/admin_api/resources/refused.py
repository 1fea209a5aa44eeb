"""`/refused-settlements`: what the store refused, set aside on this machine."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.admin_api import history_documents as documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.pagination import Page, PageQuery, page, read_cursor
from gateway.admin_api.route import AdminRoute
from gateway.errors import InvalidValue


class Booking(Struct, frozen=True, kw_only=True):
    """What to charge: the named requests, or with `all` every one. A charged request is not charged again."""

    request_ids: Annotated[list[str], Meta(min_length=1, max_length=10_000)] | None = None
    all: bool = False


async def list_(call: AdminCall, query: PageQuery) -> dict[str, Any]:
    after = read_cursor("refused", query.cursor, tuple[int]) or (0,)
    found = await call.services.refused.all(call.actor)
    end = after[0] + query.limit
    rows = [one.json_form() for one in found[after[0] : end]]
    return page("refused", rows, [end] if len(found) > end else None)


async def book(call: AdminCall, body: Booking) -> dict[str, Any]:
    if body.all == (body.request_ids is not None):
        raise InvalidValue("Give either 'request_ids' or 'all'", param="request_ids")
    done = await call.services.refused.book(call.actor, None if body.all else body.request_ids)
    return page("refused", [one.json_form() for one in done], None)


ROUTES = (
    AdminRoute(
        method="GET",
        path="/refused-settlements",
        access=Access(scope="credits", reads=True),
        summary="List the settlements that the store refused, of this machine's gateway",
        function=list_,
        query=PageQuery,
        answer=Page[documents.RefusedSettlement],
    ),
    AdminRoute(
        method="POST",
        path="/refused-settlements/book",
        access=Access(scope="credits"),
        summary="Charge refused settlements after their cause is gone, each once",
        function=book,
        body=Booking,
        answer=Page[documents.RefusedSettlement],
        writes_store=True,
    ),
)
