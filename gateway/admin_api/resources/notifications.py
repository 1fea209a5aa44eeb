"""`/notifications`: deliveries that wait or failed, a test event, and the thresholds of accounts."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, structs

from gateway.admin.notifications import send_test
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall
from gateway.admin_api.inputs import amount_of
from gateway.admin_api.pagination import Page, page
from gateway.admin_api.resources.accounts import AmountText
from gateway.admin_api.route import AdminRoute


class NotificationsQuery(Struct, frozen=True, kw_only=True):
    """The query of the deliveries."""

    limit: Annotated[int, Meta(ge=1, le=10_000, description="The most of each state.")] = 100


class Retry(Struct, frozen=True):
    """The event whose failed deliveries are queued again; without one, those of all events."""

    event: str = ""


class NewThreshold(Struct, frozen=True):
    """The balance at which the account's owners are notified, "0" for none; null for that of the configuration."""

    balance_low: AmountText | None


async def list_(call: AdminCall, query: NotificationsQuery) -> dict[str, Any]:
    return page("notifications", await call.store.notifications.list(call.actor, most=query.limit), None)


async def retry(call: AdminCall, body: Retry) -> dict[str, Any]:
    return {"queued": await call.store.notifications.retry(call.actor, body.event)}


async def test(call: AdminCall) -> dict[str, Any]:
    results = await send_test(call.actor, call.services.settings, mail=call.services.mail)
    return page("channels", [structs.asdict(result) for result in results], None)


async def threshold(call: AdminCall, account: str) -> dict[str, Any]:
    return (await call.store.notifications.threshold(call.actor, account)).json_form()


async def set_threshold(call: AdminCall, account: str, body: NewThreshold) -> dict[str, Any]:
    amount = None if body.balance_low is None else amount_of(body.balance_low, "balance_low")
    return (await call.store.notifications.set_threshold(call.actor, account, amount)).json_form()


ROUTES = (
    AdminRoute(
        method="GET",
        path="/notifications",
        access=Access(scope="read"),
        summary="List deliveries of events that wait for an attempt, then those that were given up",
        function=list_,
        query=NotificationsQuery,
        answer=Page[documents.Delivery],
    ),
    AdminRoute(
        method="POST",
        path="/notifications/retry",
        access=Access(scope="config"),
        summary="Deliver again what was given up",
        function=retry,
        body=Retry,
        answer=documents.Queued,
        writes_store=True,
    ),
    AdminRoute(
        method="POST",
        path="/notifications/test",
        access=Access(scope="config"),
        summary="Send a test event to the webhook and to mail_to, and show the answers",
        function=test,
        answer=Page[documents.Channel],
    ),
    AdminRoute(
        method="GET",
        path="/accounts/{account}/threshold",
        access=Access(scope="read", target="account"),
        summary="Show the balance at which the owners of an account are notified",
        function=threshold,
        answer=documents.Threshold,
    ),
    AdminRoute(
        method="PUT",
        path="/accounts/{account}/threshold",
        access=Access(scope="accounts", target="account"),
        summary="Set or remove the balance at which the owners of an account are notified",
        function=set_threshold,
        body=NewThreshold,
        answer=documents.Threshold,
        writes_store=True,
    ),
)
