"""`/accounts/{account}/members` and beside it: invitations, limits, statements, notifications, running calls."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from gateway.admin.actor import ACCOUNT_ROLES
from gateway.admin.pages import page_of
from gateway.admin.rights import decides_for
from gateway.amounts import format_amount
from gateway.console.fields import amount_field
from gateway.console.group_limits import COUNTS, account_limits
from gateway.console.pages.site_calls import running_values
from gateway.console.pages.site_users import invited, shown_email
from gateway.console.replies import PAGE, Download, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, NotFound
from gateway.people.memberships import checked_account_role
from gateway.reports.csv_file import csv_pieces, in_pages
from gateway.reports.statement import CSV_COLUMNS, Statement
from gateway.reports.statements import Statements
from gateway.web.request_limits import CANCELLATIONS, REPORTS, RUNNING

ACCOUNT = "/accounts/{account}"
MEMBERS = f"{ACCOUNT}/members"
MOST_MONTHS = 24  # of statements
MOST_CHARGED = 200  # models and keys on the page of a statement; the CSV file has all
PERIODS = {"": "all time", "day": "a day", "week": "a week", "month": "a month"}


async def members(visit: Visit, account: str) -> Reply:
    people = await visit.people()
    record = await visit.store.accounts.show(account)
    search, after = visit.query("q").strip(), visit.query("after")
    found = await people.memberships.list(visit.actor, account, after=after, containing=search, limit=PAGE + 1)
    shown, last = page_of(found, PAGE)
    budgets = await people.member_budgets.of_members(visit.actor, account, shown)
    threshold = await visit.store.notifications.threshold(visit.actor, account)
    values = {
        "account": record,
        "counts": COUNTS,
        "limits": account_limits(visit.settings, record),
        "members": shown,
        "next": last.email if last else "",
        "is_first": not after,
        "search": search,
        "budgets": budgets,
        "roles": ACCOUNT_ROLES,
        "periods": PERIODS,
        "invitations": await people.invitations.list(visit.actor, account),
        "months": _months(record.created),
        "threshold": "" if threshold.balance_low is None else format_amount(threshold.balance_low),
        "default_threshold": visit.settings.notify.balance_low,
        "nano": format_amount,
        "writes": decides_for(visit.actor, account),
    }
    return View("members.html", f"Account {account}", values)


async def invite(visit: Visit, account: str) -> Reply:
    role = checked_account_role(visit.text("role"))
    messages = (await visit.people()).messages
    done = await messages.invite_to_account(visit.actor, visit.text("email"), account, role)
    return invited(visit, done, back=f"/accounts/{account}/members")


async def withdraw(visit: Visit, account: str, open_invitation: str) -> Reply:
    people = await visit.people()
    if open_invitation not in {one.id for one in await people.invitations.list(visit.actor, account)}:
        raise NotFound("There is no such invitation")
    await people.invitations.withdraw(visit.actor, open_invitation)
    visit.note("The invitation is withdrawn.")
    return Redirect(f"/accounts/{account}/members")


async def set_role(visit: Visit, account: str, user: str) -> Reply:
    role = checked_account_role(visit.text("role"))
    await _require_member(visit, account, user)
    memberships, shown = (await visit.people()).memberships, shown_email(visit)
    changed = await memberships.set(visit.actor, user, account, role, expected_email=shown)
    visit.note(f"{changed.email} is {role} now.")
    return Redirect(f"/accounts/{account}/members")


async def set_budget(visit: Visit, account: str, user: str) -> Reply:
    budget, every = amount_field(visit, "budget", "Budget"), visit.text("every")
    if every not in PERIODS:
        raise InvalidValue("Choose one of the periods", param="every")
    budgets = (await visit.people()).member_budgets
    if budget is None:
        await budgets.change(visit.actor, user, account, clear=["budget"])
    elif every:
        await budgets.change(visit.actor, user, account, budget=budget, every=every)  # type: ignore[arg-type]
    else:
        await budgets.change(visit.actor, user, account, budget=budget, clear=["every"])
    visit.note("The budget is set, from the next call on.")
    return Redirect(f"/accounts/{account}/members")


async def remove(visit: Visit, account: str, user: str) -> Reply:
    await (await visit.people()).memberships.remove(visit.actor, user, account)
    visit.note("The member is removed; their keys of this account are revoked.")
    return Redirect(f"/accounts/{account}/members" if visit.person.id != user else "/")


async def set_threshold(visit: Visit, account: str) -> Reply:
    amount = amount_field(visit, "balance_low", "Balance")
    await visit.store.notifications.set_threshold(visit.actor, account, amount)
    visit.note("The notification is set.")
    return Redirect(f"/accounts/{account}/members")


async def statement(visit: Visit, account: str, month: str) -> Reply:
    found = await _statement(visit, account, month)
    shown, more = page_of(found.charged, MOST_CHARGED)
    form = structs.replace(found, charged=[], movements=[]).json_form()
    values = {
        "account": account,
        "month": month,
        "statement": found,
        "form": form,
        "charged": shown,
        "has_more": more is not None,
    }
    return View("statement.html", f"Statement of {month}", values)


async def statement_csv(visit: Visit, account: str, month: str) -> Reply:
    found = await _statement(visit, account, month)
    pieces = await csv_pieces(CSV_COLUMNS, in_pages(found.csv_records()))
    return Download(f"statement-{account}-{month}.csv", "text/csv; charset=utf-8", pieces)


async def running_calls(visit: Visit, account: str) -> Reply:
    return View("running.html", f"Running calls of {account}", await running_values(visit, account))


async def cancel(visit: Visit, account: str, running: str) -> Reply:
    await visit.services.running_calls.cancel(visit.actor, running, account=account)
    visit.note("The call is cancelled; what was delivered is charged.")
    return Redirect(f"/accounts/{account}/running")


async def _require_member(visit: Visit, account: str, user: str) -> None:
    people = await visit.people()
    await people.member_budgets.show(visit.actor, user, account)  # NotFound


async def _statement(visit: Visit, account: str, month: str) -> Statement:
    history, directory = await visit.services.history(), (await visit.people()).directory
    return await Statements(history, visit.store.store, directory).statement(visit.actor, account, month)


def _months(since: datetime) -> list[str]:
    """The months of an account, the newest first."""
    found, now = list[str](), datetime.now(UTC)
    year, month = now.year, now.month
    while (year, month) >= (since.year, since.month) and len(found) < MOST_MONTHS:
        found.append(f"{year}-{month:02}")
        year, month = (year, month - 1) if month > 1 else (year - 1, 12)
    return found


def _post(path: str, function: Any, *, always: bool = False) -> PageRoute:
    path = f"{MEMBERS}/{{user}}/{path}"
    return PageRoute(method="POST", path=path, audience="owner", function=function, always=always)


def _statement_route(path: str, function: Any) -> PageRoute:
    path = f"{ACCOUNT}/statements/{{month}}{path}"
    return PageRoute(method="GET", path=path, audience="owner", function=function, waits=True, limit=REPORTS)


ROUTES = (
    PageRoute(method="GET", path=MEMBERS, audience="owner", function=members, help="people#who-is-who", menu="Account"),
    PageRoute(method="POST", path=f"{MEMBERS}", audience="owner", function=invite, form=members),
    PageRoute(
        method="POST",
        path=f"{ACCOUNT}/invitations/{{open_invitation}}/withdraw",
        audience="owner",
        function=withdraw,
        always=True,
    ),
    _post("role", set_role),
    _post("budget", set_budget),
    _post("remove", remove, always=True),
    PageRoute(method="POST", path=f"{ACCOUNT}/notifications", audience="owner", function=set_threshold, form=members),
    _statement_route("", statement),
    _statement_route("/lines.csv", statement_csv),
    PageRoute(
        method="GET",
        path=f"{ACCOUNT}/running",
        audience="owner",
        function=running_calls,
        help="console#pages",
        menu="Running calls",
        waits=True,
        limit=RUNNING,
    ),
    PageRoute(
        method="POST",
        path=f"{ACCOUNT}/running/{{running}}/cancel",
        audience="owner",
        function=cancel,
        always=True,
        limit=CANCELLATIONS,
    ),
)
