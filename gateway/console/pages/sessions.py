"""`/accounts/{account}/sessions`: the sessions of the calls of the last days: cost, models, tokens, and the cache."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from gateway.admin.times import from_micros, to_micros
from gateway.console.numbered_pages import numbered_page
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.history.session_list import read_session_lines
from gateway.ledger.price_tables import read_prices
from gateway.reports.reports import restricted
from gateway.reports.sessions import by_session, price_versions, session_of
from gateway.web.work_threads import PAGES

PATH = "/accounts/{account}/sessions"
DAYS = 7


async def sessions(visit: Visit, account: str) -> Reply:
    """Members see the sessions of their own calls, owners and readers those of all calls of the account."""
    [user] = restricted(visit.actor, {"account": [account]}).get("user", [""])
    since = to_micros(datetime.now(UTC) - timedelta(days=DAYS))
    found = await (await visit.people()).transactions.read(read_session_lines, account, since=since, user=user)
    shown = numbered_page(by_session(found.lines), visit.query("page"))
    versions = await PAGES.run(price_versions, [line for lines in shown.rows for line in lines])
    prices = await read_prices(visit.store.store, versions)
    values = {
        "account": account,
        "base": PATH.format(account=account),
        "usage": f"/accounts/{account}/usage",
        "days": DAYS,
        "shown": shown,
        "sessions": await PAGES.run(lambda: [session_of(lines, prices) for lines in shown.rows]),
        "kept": {},
        "calls": sum(line.is_call for line in found.lines),
        "cost": -sum(line.amount for line in found.lines),
        "searched_since": from_micros(found.since) if found.since > since else None,
        "moment": from_micros,
    }
    return View("sessions.html", "Sessions", values)


ROUTES = (
    PageRoute(method="GET", path=PATH, audience="member", function=sessions, help="api#sessions", menu="Sessions"),
)
