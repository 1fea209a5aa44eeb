"""`/batches`: the batches of all accounts: list, show, cancel."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.admin.pages import page_of
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall, visible_account
from gateway.admin_api.documents import Amount, Time
from gateway.admin_api.pagination import Cursor, Limit, Page, page, read_cursor
from gateway.admin_api.route import AdminRoute


class BatchesQuery(Struct, frozen=True, kw_only=True):
    """The query of a list of batches."""

    account: Annotated[str, Meta(max_length=63, description="Only batches of this account.")] = ""
    limit: Limit = 100
    cursor: Cursor = ""


class BatchError(Struct):
    """Something wrong with the input, or the reason why a batch has ended early."""

    code: str
    message: str
    param: str | None
    line: Annotated[int | None, Meta(description="Of the input, from 1.")]


class Batch(Struct):
    """A batch and its progress."""

    id: str
    account: str
    key: Annotated[str, Meta(description="The id of the key that has made it.")]
    user: Annotated[str | None, Meta(description="The id of the user who has the key.")]
    endpoint: str
    status: str
    total: Annotated[int, Meta(description="Lines of the input.")]
    completed: int
    failed: int
    cost: Annotated[Amount, Meta(description="So far.")]
    held: Annotated[Amount, Meta(description="For the lines that run, a second ago.")]
    max_cost: Amount | None
    created: Time
    expires: Time
    started: Time | None
    cancelled: Annotated[Time | None, Meta(description="When a caller or an operator has cancelled it.")]
    ended: Time | None
    input_file: str
    output_file: str | None
    error_file: str | None
    metadata: dict[str, str] | None
    errors: list[BatchError]


async def list_(call: AdminCall, query: BatchesQuery) -> dict[str, Any]:
    before = read_cursor("batches", query.cursor, tuple[int, str])
    account = visible_account(call, query.account)
    found = await call.store.batches.list(call.actor, account=account, before=before, limit=query.limit + 1)
    shown, last = page_of(found, query.limit)
    return page("batches", [one.json_form() for one in shown], last.position if last else None)


async def show(call: AdminCall, batch: str) -> dict[str, Any]:
    return (await call.store.batches.show(call.actor, batch)).json_form()


async def cancel(call: AdminCall, batch: str) -> dict[str, Any]:
    return (await call.store.batches.cancel(call.actor, batch)).json_form()


ROUTES = (
    AdminRoute(
        method="GET",
        path="/batches",
        access=Access(scope="accounts", target="visible", reads=True),
        summary="List the batches, newest first",
        function=list_,
        query=BatchesQuery,
        answer=Page[Batch],
    ),
    AdminRoute(
        method="GET",
        path="/batches/{batch}",
        access=Access(scope="accounts", target="visible", reads=True),
        summary="Show a batch: its progress, what it has cost, and what is wrong with its input",
        function=show,
        answer=Batch,
    ),
    AdminRoute(
        method="POST",
        path="/batches/{batch}/cancel",
        access=Access(scope="accounts", target="visible"),
        summary="Cancel a batch; lines that run are completed, and no other begins",
        function=cancel,
        answer=Batch,
        writes_store=True,
    ),
)
