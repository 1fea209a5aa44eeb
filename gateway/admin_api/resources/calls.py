"""`/calls`: the running calls of all machines: list, cancel; and one call that was settled."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.admin.pages import page_of
from gateway.admin.running_calls import call_form
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall, visible_account
from gateway.admin_api.documents import Amount, Time
from gateway.admin_api.history_documents import SettledCall
from gateway.admin_api.pagination import Cursor, Limit, page, read_cursor
from gateway.admin_api.route import AdminRoute
from gateway.reports.call_details import CallReader
from gateway.web.request_limits import RUNNING


class CallsQuery(Struct, frozen=True, kw_only=True):
    """The query of a list of running calls."""

    account: Annotated[str, Meta(max_length=63, description="Only calls of this account.")] = ""
    limit: Limit = 100
    cursor: Cursor = ""


class CallQuery(Struct, frozen=True):
    """Where to look for a settled call."""

    account: Annotated[
        str, Meta(max_length=63, description="Look into the store, too: a call of the last second is only there.")
    ] = ""


class RunningCall(Struct):
    """A call that was admitted and is not settled."""

    request_id: str
    account: str
    key: Annotated[str, Meta(description="The id of the key.")]
    model: Annotated[str, Meta(description="The requested model.")]
    provider: Annotated[str | None, Meta(description="Of the last attempt.")]
    endpoint: str
    stream: bool
    seconds: Annotated[float, Meta(description="Since the request began.")]
    tokens_out: Annotated[int, Meta(description="Delivered so far.")]
    cost: Annotated[Amount, Meta(description="Of what was delivered so far.")]
    held: Amount
    started: Time
    machine: Annotated[
        str | None, Meta(description="Host and port of the gateway; null for callers without the scope for the site.")
    ]
    session: Annotated[str | None, Meta(description="The id of the session.")]


class RunningCalls(Struct):
    """A page of running calls. The calls of workers and machines that do not answer are missing."""

    data: list[RunningCall]
    next_cursor: str | None
    silent_workers: int
    silent_machines: int


async def list_(call: AdminCall, query: CallsQuery) -> dict[str, Any]:
    after = read_cursor("calls", query.cursor, tuple[int, str])
    found = await call.services.running_calls.list(
        call.actor, account=query.account, after=after, limit=query.limit + 1
    )
    shown, last = page_of(found.calls, query.limit)
    document = page("calls", [call_form(one) for one in shown], last.position if last else None)
    return {**document, "silent_workers": found.silent, "silent_machines": found.silent_machines}


async def show(call: AdminCall, request_id: str, query: CallQuery) -> dict[str, Any]:
    reader = CallReader(await call.services.history(), call.store.store)
    account = visible_account(call, query.account) or None
    return (await reader.show(call.actor, request_id, account)).json_form()


async def cancel(call: AdminCall, request_id: str) -> dict[str, Any]:
    return call_form(await call.services.running_calls.cancel(call.actor, request_id))


ROUTES = (
    AdminRoute(
        method="GET",
        path="/calls",
        access=Access(scope="accounts", target="visible", reads=True, owners=True),
        summary="List the running calls of all machines, oldest first",
        function=list_,
        query=CallsQuery,
        answer=RunningCalls,
        limit=RUNNING,
    ),
    AdminRoute(
        method="GET",
        path="/calls/{request_id}",
        access=Access(scope="read", target="visible", owners=True),
        summary="Show a settled call: what it was charged and why, what answered, and how long it took",
        function=show,
        query=CallQuery,
        answer=SettledCall,
    ),
    AdminRoute(
        method="POST",
        path="/calls/{request_id}/cancel",
        access=Access(scope="accounts", target="visible", owners=True),
        summary="End a running call; what was delivered is charged",
        function=cancel,
        answer=RunningCall,
    ),
)
