"""`/`: leads to the first page of the reader. `/accounts`: the accounts of the reader, with a search."""

from __future__ import annotations

from gateway.admin.pages import page_of
from gateway.console.menu import HOME_OF_SITE, current_account
from gateway.console.replies import PAGE, Redirect, Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit


async def start(visit: Visit) -> Reply:
    if visit.actor.may("read"):
        return Redirect(HOME_OF_SITE)
    account = current_account(visit)
    return Redirect(f"/accounts/{account}" if account else "/profile")


async def accounts(visit: Visit) -> Reply:
    search, after = visit.query("q").lower(), visit.query("after")
    memberships = (await visit.people()).memberships
    found = await memberships.own(visit.actor, after=after, beginning=search, limit=PAGE + 1)
    shown, last = page_of(found, PAGE)
    values = {
        "accounts": [one for one in shown if one.role],
        "next": last.account if last else "",
        "search": search,
        "is_first": not after,
    }
    return View("own_accounts.html", "Your accounts", values)


ROUTES = (
    PageRoute(method="GET", path="/", audience="signed_in", function=start),
    PageRoute(method="GET", path="/accounts", audience="signed_in", function=accounts),
)
