"""`/site/alerts`: all that needs an operator, and the newest changes."""

from __future__ import annotations

from datetime import UTC, datetime

from gateway.console.fields import whole_number
from gateway.console.paths import own_path
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, NotFound

PATH = "/site/alerts"
HOURS = {1: "1 hour", 8: "8 hours", 24: "a day", 168: "7 days"}


async def alerts(visit: Visit) -> Reply:
    watch = visit.services.attention
    values = {
        "all_findings": watch.findings,
        "shown": {one.id for one in watch.shown_to(visit.actor.id)},
        "alerts": watch.alerts,
        "hours": HOURS,
        "at": lambda seconds: datetime.fromtimestamp(seconds, UTC),
    }
    return View("site_alerts.html", "Alerts", values)


async def hide(visit: Visit) -> Reply:
    hours = whole_number(visit.text("hours"))
    if hours not in HOURS:
        raise InvalidValue(f"Choose one of {', '.join(map(str, HOURS))} hours", param="hours")
    if not await visit.services.attention.dismiss(visit.actor.id, visit.text("id"), hours * 3600.0):
        raise NotFound("This alert has ended already")
    visit.note(f"The alert is hidden from you for {HOURS[hours]}. The page Alerts still has it.")
    return Redirect(own_path(visit.text("back") or PATH))


ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="viewer",
        function=alerts,
        help="console#alerts",
        menu="Alerts",
        group="Overview",
    ),
    PageRoute(method="POST", path=f"{PATH}/hide", audience="operator", function=hide, form=alerts),
)
