"""`/accounts/{account}/reports`: sums of usage in groups, of one account; members see their own."""

from __future__ import annotations

from gateway.console.choices import MOST_KEYS, MOST_MEMBERS, keys_to_choose, members_to_choose
from gateway.console.replies import Reply, View
from gateway.console.report_form import ReportForm, report_form
from gateway.console.report_page import report_csv, report_json, report_values
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.web.request_limits import REPORTS

PATH = "/accounts/{account}/reports"


async def reports(visit: Visit, account: str) -> Reply:
    values = {
        **await report_values(visit, _form(visit, account)),
        "path": PATH.format(account=account),
        "keys": await keys_to_choose(visit, account, visit.query("key")),
        "most_keys": MOST_KEYS,
        "most_members": MOST_MEMBERS,
        "members": await members_to_choose(visit, account, visit.query("user")),
    }
    return View("reports.html", f"Reports of {account}", values)


async def reports_csv(visit: Visit, account: str) -> Reply:
    return await report_csv(visit, _form(visit, account))


async def reports_json(visit: Visit, account: str) -> Reply:
    return await report_json(visit, _form(visit, account))


def _form(visit: Visit, account: str) -> ReportForm:
    return report_form(visit, account, default="model")


ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="member",
        function=reports,
        help="console#reports",
        menu="Reports",
        waits=True,
        limit=REPORTS,
    ),
    PageRoute(method="GET", path=f"{PATH}.csv", audience="member", function=reports_csv, waits=True, limit=REPORTS),
    PageRoute(method="GET", path=f"{PATH}.json", audience="member", function=reports_json, waits=True, limit=REPORTS),
)
