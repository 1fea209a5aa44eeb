"""`/audit-trail`: who did what. `/audits`: the ledger held against the balances. Lines of an account's ledger."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.admin.audit_trail import AuditFilter, newest_events
from gateway.admin.pages import page_of
from gateway.admin_api import documents
from gateway.admin_api.access import Access
from gateway.admin_api.call import AdminCall, visible_account
from gateway.admin_api.pagination import Cursor, Limit, Page, page, read_cursor
from gateway.admin_api.resources.keys import Moment
from gateway.admin_api.route import AdminRoute


class LinesQuery(Struct, frozen=True, kw_only=True):
    """The query of an account's ledger lines."""

    since: Moment | None = None
    limit: Limit = 100
    cursor: Cursor = ""


class EventsQuery(Struct, frozen=True, kw_only=True):
    """The query of the audit trail."""

    since: Moment | None = None
    actor: Annotated[str, Meta(description="`KIND:ID`, a kind (cli, user, token), an id, or an e-mail.")] = ""
    object: Annotated[str, Meta(description="`KIND:ID` such as `account:acme`, or a kind.")] = ""
    account: str = ""
    limit: Limit = 100
    cursor: Cursor = ""


class NewAudit(Struct, frozen=True, kw_only=True):
    """What to audit: one account, or all."""

    account: str | None = None


async def lines(call: AdminCall, account: str, query: LinesQuery) -> dict[str, Any]:
    await call.store.accounts.show(account)
    pages = call.services.line_pages
    found = await pages.page(call.actor, account, limit=query.limit, before=query.cursor or None, since=query.since)
    return found.json_form()


async def trail(call: AdminCall, query: EventsQuery) -> dict[str, Any]:
    account = visible_account(call, query.account)
    before = read_cursor("events", query.cursor, tuple[str])
    wanted = AuditFilter(
        since=query.since,
        actor=query.actor,
        object=query.object,
        account=account,
        before=before[0] if before else "",
    )
    people = await call.people()
    found = await newest_events(call.actor, people.audit_trail, call.store.outbox, wanted, limit=query.limit + 1)
    shown, last = page_of(found, query.limit)
    return page("events", [event.json_form() for event in shown], [last.id] if last else None)


async def run(call: AdminCall, body: NewAudit) -> dict[str, Any]:
    account = visible_account(call, body.account or "")
    report = await call.services.audits.run(call.store, await call.services.database(), account or None)
    return report.json_form() | {"clean": report.clean}


ROUTES = (
    AdminRoute(
        method="GET",
        path="/accounts/{account}/lines",
        access=Access(scope="read", target="account", owners=True),
        summary="List the ledger lines of an account, newest first",
        function=lines,
        query=LinesQuery,
        answer=Page[documents.Line],
    ),
    AdminRoute(
        method="GET",
        path="/audit-trail",
        access=Access(scope="read", target="visible"),
        summary="List who changed what, newest first",
        function=trail,
        query=EventsQuery,
        answer=Page[documents.AuditEvent],
    ),
    AdminRoute(
        method="POST",
        path="/audits",
        access=Access(scope="read", target="visible"),
        summary="Compare the ledger of an account, or of all, with the balances; one audit runs at a time",
        function=run,
        body=NewAudit,
        answer=documents.AuditReport,
    ),
)
