"""`/site/reports`: sums of usage over all accounts, with the operator's own costs where they are known."""

from __future__ import annotations

from gateway.console.replies import Reply, View
from gateway.console.report_form import ReportForm, report_form
from gateway.console.report_page import report_csv, report_json, report_values
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.web.request_limits import REPORTS

PATH = "/site/reports"


async def reports(visit: Visit) -> Reply:
    values = {**await report_values(visit, _form(visit)), "path": PATH, "keys": [], "members": []}
    return View("reports.html", "Reports of all accounts", values)


async def reports_csv(visit: Visit) -> Reply:
    return await report_csv(visit, _form(visit))


async def reports_json(visit: Visit) -> Reply:
    return await report_json(visit, _form(visit))


def _form(visit: Visit) -> ReportForm:
    return report_form(visit, "", default="account")


ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="viewer",
        function=reports,
        help="console#reports",
        menu="All reports",
        group="Money",
        waits=True,
        limit=REPORTS,
    ),
    PageRoute(method="GET", path=f"{PATH}.csv", audience="viewer", function=reports_csv, waits=True, limit=REPORTS),
    PageRoute(method="GET", path=f"{PATH}.json", audience="viewer", function=reports_json, waits=True, limit=REPORTS),
)
