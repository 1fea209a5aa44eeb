"""`/site/superseded`: ledger lines that the store has lost, to be booked again or acknowledged."""

from __future__ import annotations

import asyncio

from gateway.admin.superseded_lines import BOOKED
from gateway.console.fields import whole_number
from gateway.console.replies import Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import InvalidValue, Unavailable

PATH = "/site/superseded"
PAGE = 100
LONGEST = 60.0  # seconds of a booking; what it has booked by then stays booked


async def lines(visit: Visit) -> Reply:
    after = whole_number(visit.query("after")) or 0
    service = await visit.services.superseded()
    found = await service.open_lines(visit.actor, after=after, limit=PAGE + 1)
    shown = found[:PAGE]
    values = {
        "lines": [one.summary for one in shown],
        "next": shown[-1].id if len(found) > PAGE else 0,
        "is_first": not after,
    }
    return View("site_superseded.html", "Superseded lines", values)


async def change(visit: Visit) -> Reply:
    await visit.confirm_password()
    service, action = await visit.services.superseded(), visit.text("action")
    ids = None if visit.text("all") else _chosen(visit)
    if action == "acknowledge":
        closed = await service.acknowledge(visit.actor, ids, note=visit.text("note"))
        visit.note(f"{closed} lines are acknowledged; they are not booked.")
        return Redirect(PATH)
    if action != "book":
        raise InvalidValue("Choose whether to book or to acknowledge", param="action")
    try:
        async with asyncio.timeout(LONGEST):
            booking = await service.book(visit.actor, ids)
    except TimeoutError:
        raise Unavailable("The booking takes too long here; run gateway superseded book") from None
    visit.note(f"{booking.booked} lines are booked, {booking.left} stay open.")
    for one in [one for one in booking.lines if one.state != BOOKED][:3]:
        visit.note(f"Line {one.found.line.n} of {one.found.line.account}: {one.state}.")
    return Redirect(PATH)


def _chosen(visit: Visit) -> list[int]:
    ids = [number for text in visit.texts("line") if (number := whole_number(text)) is not None]
    if not ids:
        raise InvalidValue("Choose a line", param="line")
    return ids


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="viewer", function=lines, help="operations/backup#older-store"),
    PageRoute(method="POST", path=PATH, audience="operator", function=change, form=lines),
)
