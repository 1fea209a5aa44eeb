"""`/site/calls`: what runs now, and all calls; the ledger, its audit, and the audit trail."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from gateway.admin.audit_trail import AuditFilter, newest_events
from gateway.admin.key_lookups import key_names
from gateway.admin.pages import page_of
from gateway.admin.rights import decides_for
from gateway.admin.times import from_micros, to_micros
from gateway.amounts import format_amount
from gateway.console.call_order import chosen_order, is_ranked
from gateway.console.called_names import MOST_ACCOUNTS, named_key, named_user
from gateway.console.fields import whole_number
from gateway.console.ranges import LABELS, chosen_range
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import Unavailable
from gateway.history.call_search import CallSearch, FoundCall
from gateway.history.ranked_calls import RankedCalls
from gateway.reports.call_lists import CallLists
from gateway.web.request_limits import CANCELLATIONS, RUNNING, SEARCHES

MOST_RUNNING = 200
#: Name, label and hint of each field.
FILTERS = (
    ("request_id", "Request", "req_… or chatcmpl-…"),
    ("account", "Account", ""),
    ("user", "User", "name or e-mail"),
    ("key", "Key", "name or last four"),
    ("model", "Model", ""),
    ("provider", "Provider", ""),
    ("outcome", "Outcome", ""),
    ("session", "Session", ""),
)


async def calls(visit: Visit) -> Reply:
    chosen, order = chosen_range(visit), chosen_order(visit)
    filters: dict[str, Any] = {name: visit.query(name) for name, _, _ in FILTERS}
    user, person = await named_user(visit, filters["user"])
    accounts = [filters["account"]] if filters["account"] else sorted(person.accounts)[:MOST_ACCOUNTS] if person else []
    named = {"user": user, "key": await named_key(visit, filters["key"], accounts, person.id if person else "")}
    wanted = CallSearch(
        since=to_micros(chosen.since),
        until=to_micros(chosen.until),
        before=_before(visit.query("before")),
        **filters | {name: one.id for name, one in named.items()},
    )
    found = await _found(visit, order.search(wanted))
    shown, end = page_of(found.calls, PAGE)
    values = {
        "path": "/site/calls",
        "range": chosen,
        "filters": FILTERS,
        "labels": LABELS,
        "keep": {**filters, **order.texts},
        "order": order.texts,
        "chosen": filters | {name: one.text for name, one in named.items()},
        "named": named,
        "found": shown,
        "names": await key_names(visit.store.store, sorted({one.call.key_id for one in shown} - {""})),
        "next": order.next(end) if order.search(wanted).is_ranked else _behind(end),
        "is_first": not any(visit.query(name) for name in ("before", "behind", "older")),
        "searched_since": from_micros(found.since) if found.since > wanted.since and end is None else None,
        "searched_until": found.since,
        "moment": from_micros,
    }
    return View("site_calls.html", "Calls", values)


async def _found(visit: Visit, wanted: CallSearch) -> RankedCalls:
    if wanted.is_ranked and not wanted.request_id:
        visit.actor.require("read")
        return await CallLists(await visit.services.history()).ranked(visit.actor, wanted, limit=PAGE + 1)
    lists = CallLists((await visit.people()).transactions)
    return RankedCalls(list(await lists.search(visit.actor, wanted, limit=PAGE + 1)), wanted.since)


def _behind(last: FoundCall | None) -> dict[str, str]:
    if last is None:
        return {}
    at, account, seq = last.position
    return {"before": f"{at}.{seq}.{account}"}


async def running_calls(visit: Visit) -> Reply:
    return View("running.html", "All running calls", await running_values(visit, ""))


async def running_values(visit: Visit, account: str) -> dict[str, Any]:
    """The running calls that the reader may see, of one account or of all."""
    try:
        found = await visit.services.running_calls.list(visit.actor, account=account, limit=MOST_RUNNING + 1)
        (running, more), silent, machines = page_of(found.calls, MOST_RUNNING), found.silent, found.silent_machines
    except Unavailable:
        running, more, silent, machines = [], None, 1, 0
    return {
        "calls": running,
        "has_more": more is not None,
        "silent": silent,
        "silent_machines": machines,
        "shows_machine": not account and len(visit.services.machines.found) > 1,
        "account": account,
        "base": f"/accounts/{account}/running" if account else "/site/running",
        "may_cancel": decides_for(visit.actor, account),
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
        await visit.store.accounts.show(account)
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
    PageRoute(
        method="GET",
        path="/site/calls",
        audience="viewer",
        function=calls,
        help="console#calls",
        menu="Calls",
        group="Traffic",
        waits_if=is_ranked,
        limit=SEARCHES,
    ),
    PageRoute(
        method="GET",
        path="/site/running",
        audience="viewer",
        function=running_calls,
        help="console#pages",
        menu="All running calls",
        group="Traffic",
        waits=True,
        limit=RUNNING,
    ),
    PageRoute(
        method="POST",
        path="/site/running/{running}/cancel",
        audience="operator",
        function=cancel,
        limit=CANCELLATIONS,
    ),
    PageRoute(
        method="GET", path="/site/ledger/{account}", audience="viewer", function=ledger, help="operations/audit#audit"
    ),
    PageRoute(
        method="GET",
        path="/site/audit",
        audience="viewer",
        function=audit,
        help="operations/audit#audit",
        menu="Audit",
        group="Money",
    ),
    PageRoute(method="POST", path="/site/audit", audience="operator", function=run_audit, form=audit),
    PageRoute(
        method="GET",
        path="/site/audit-trail",
        audience="viewer",
        function=trail,
        help="people#audit-trail",
        menu="Audit trail",
        group="System",
    ),
)
