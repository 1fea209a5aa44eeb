"""`/accounts/{account}/reports`: sums of usage in groups, of one account; members see their own."""

from __future__ import annotations

from gateway.admin.user_rows import User
from gateway.console.replies import Reply, View
from gateway.console.report_form import ReportForm, report_form
from gateway.console.report_page import LIMIT, report_csv, report_json, report_values
from gateway.console.route import Route
from gateway.console.visit import Visit

PATH = "/accounts/{account}/reports"
MOST_MEMBERS = 200  # to choose from


async def reports(visit: Visit, account: str) -> Reply:
    values = {
        **await report_values(visit, _form(visit, account)),
        "path": PATH.format(account=account),
        "keys": await visit.store.visible_keys.list(visit.actor, account),
        "members": await _members(visit, account),
    }
    return View("reports.html", f"Reports of {account}", values)


async def reports_csv(visit: Visit, account: str) -> Reply:
    return await report_csv(visit, _form(visit, account))


async def reports_json(visit: Visit, account: str) -> Reply:
    return await report_json(visit, _form(visit, account))


async def _members(visit: Visit, account: str) -> list[User]:
    """The members, for readers who see the usage of all of them."""
    if not (visit.actor.may("read") or visit.actor.owns(account)):
        return []
    return await (await visit.people()).memberships.list(visit.actor, account, limit=MOST_MEMBERS)


def _form(visit: Visit, account: str) -> ReportForm:
    return report_form(visit, account, default="model")


ROUTES = (
    Route(method="GET", path=PATH, audience="member", function=reports, menu="Reports", waits=True, limit=LIMIT),
    Route(method="GET", path=f"{PATH}.csv", audience="member", function=reports_csv, waits=True, limit=LIMIT),
    Route(method="GET", path=f"{PATH}.json", audience="member", function=reports_json, waits=True, limit=LIMIT),
)
