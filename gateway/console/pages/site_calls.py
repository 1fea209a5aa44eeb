"""`/site/calls`: what runs now, and all calls; the ledger, its audit, and the audit trail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.admin.audit_trail import AuditFilter
from gateway.admin.call_lists import CallLists
from gateway.admin.newest_events import newest_events
from gateway.admin.pages import page_of
from gateway.admin.refusals import existing_account
from gateway.admin.times import from_micros, to_micros
from gateway.amounts import format_amount
from gateway.console.fields import whole_number
from gateway.console.ranges import LABELS, chosen_range
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import Route
from gateway.console.visit import Visit
from gateway.errors import Unavailable
from gateway.history.call_search import CallSearch

MOST_RUNNING = 200
FILTERS = ("account", "request_id", "key", "user", "model", "provider", "outcome")


async def calls(visit: Visit) -> Reply:
    chosen, people = chosen_range(visit), await visit.people()
    filters = {name: visit.query(name) for name in FILTERS}
    wanted = CallSearch(
        since=to_micros(chosen.since), until=to_micros(chosen.until), before=_before(visit.query("before")), **filters
    )
    found = await CallLists(people.transactions).search(visit.actor, wanted, limit=PAGE + 1)
    shown, end = page_of(found, PAGE)
    last = end and end.position
    values = {
        "range": chosen,
        "labels": LABELS,
        "keep": filters,
        "chosen": filters,
        "found": shown,
        "next": ".".join(map(str, (last[0], last[2], last[1]))) if last else "",
        "is_first": not visit.query("before"),
        "moment": from_micros,
    }
    return View("site_calls.html", "Calls", values)


async def running_calls(visit: Visit) -> Reply:
    return View("running.html", "All running calls", await running_values(visit, ""))


async def running_values(visit: Visit, account: str) -> dict[str, Any]:
    """The running calls that the reader may see, of one account or of all."""
    try:
        found = await visit.services.running_calls.list(visit.actor, account=account, limit=MOST_RUNNING + 1)
        (running, more), silent = page_of(found.calls, MOST_RUNNING), found.silent
    except Unavailable:
        running, more, silent = [], None, 1
    return {
        "calls": running,
        "has_more": more is not None,
        "silent": silent,
        "account": account,
        "base": f"/accounts/{account}/running" if account else "/site/running",
        "may_cancel": visit.actor.is_operator or visit.actor.owns(account),
    }


async def cancel(visit: Visit, running: str) -> Reply:
    call = await visit.services.running_calls.cancel(visit.actor, running)
    visit.note(f"The call of {call.account} is cancelled; what was delivered is charged.")
    return Redirect("/site/running")


async def ledger(visit: Visit, account: str) -> Reply:
    before = visit.query("before")
    found = await visit.services.line_pages.page(visit.actor, account, limit=PAGE, before=before or None)
    values = {"account": account, "lines": found.lines, "next": found.next_cursor or "", "is_first": not before}
    return View("site_ledger.html", f"Ledger of {account}", values)


async def audit(visit: Visit) -> Reply:
    return View("site_audit.html", "Audit", {"report": None, "account": visit.query("account"), "took": None})


async def run_audit(visit: Visit) -> Reply:
    account, began = visit.text("account"), datetime.now(UTC)
    if account:
        await existing_account(visit.store.accounts, account)
    report = await visit.services.audits.run(visit.store, await visit.services.database(), account or None)
    took = int((datetime.now(UTC) - began) / timedelta(milliseconds=1))
    values = {"report": report, "account": account, "took": took, "nano": format_amount}
    return View("site_audit.html", "Audit", values)


async def trail(visit: Visit) -> Reply:
    people = await visit.people()
    chosen = {name: visit.query(name) for name in ("actor", "object", "account")}
    wanted = AuditFilter(
        actor=chosen["actor"], object=chosen["object"], account=chosen["account"], before=visit.query("before")
    )
    found = await newest_events(visit.actor, people.audit_trail, visit.store.outbox, wanted, limit=PAGE + 1)
    shown, last = page_of(found, PAGE)
    values = {
        "events": [event.json_form() for event in shown],
        "next": last.id if last else "",
        "is_first": not visit.query("before"),
        "chosen": chosen,
        "emails": await _emails(visit, {event.actor_id for event in shown if event.actor_kind == "user"}),
    }
    return View("site_trail.html", "Audit trail", values)


async def _emails(visit: Visit, ids: set[str]) -> dict[str, str]:
    users = await (await visit.people()).users.by_ids(visit.actor, ids)
    return {f"user:{user.id}": user.email for user in users}


def _before(text: str) -> tuple[int, str, int] | None:
    at, _, rest = text.partition(".")
    seq, _, account = rest.partition(".")
    since, number = whole_number(at), whole_number(seq)
    return None if since is None or number is None else (since, account, number)


ROUTES = (
    Route(method="GET", path="/site/calls", audience="viewer", function=calls, menu="Calls"),
    Route(
        method="GET",
        path="/site/running",
        audience="viewer",
        function=running_calls,
        menu="All running calls",
        waits=True,
    ),
    Route(method="POST", path="/site/running/{running}/cancel", audience="operator", function=cancel),
    Route(method="GET", path="/site/ledger/{account}", audience="viewer", function=ledger),
    Route(method="GET", path="/site/audit", audience="viewer", function=audit, menu="Audit"),
    Route(method="POST", path="/site/audit", audience="operator", function=run_audit, form=audit),
    Route(method="GET", path="/site/audit-trail", audience="viewer", function=trail, menu="Audit trail"),
)
