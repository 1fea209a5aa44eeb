"""`/`: leads to the first page of the reader."""

from __future__ import annotations

from gateway.console.menu import current_account
from gateway.console.replies import Redirect, Reply
from gateway.console.route import PageRoute
from gateway.console.visit import Visit


async def start(visit: Visit) -> Reply:
    account = current_account(visit)
    if account:
        return Redirect(f"/accounts/{account}")
    if visit.actor.may("read") and visit.home_of_site:
        return Redirect(visit.home_of_site)
    return Redirect("/profile")


ROUTES = (PageRoute(method="GET", path="/", audience="signed_in", function=start),)
