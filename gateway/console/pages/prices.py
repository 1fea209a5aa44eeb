"""`/accounts/{account}/prices`: what the account pays for each model; `/prices`: the price list, if it is public."""

from __future__ import annotations

from typing import Any

from gateway.accounts.accounts import Account
from gateway.accounts.key_settings import ENDPOINTS
from gateway.admin.price_list import price_list
from gateway.console.price_rows import SORTS, capabilities, other_prices, price_rows
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit


async def of_account(visit: Visit, account: str) -> Reply:
    return _page(visit, await visit.store.accounts.show(account))


async def public(visit: Visit) -> Reply:
    return _page(visit, None)


def is_open(visit: Visit) -> bool:
    """Without `public_prices` the price list is for people who are signed in."""
    return visit.settings.console.public_prices or visit.is_signed_in


def _page(visit: Visit, account: Account | None) -> Reply:
    sort, descending = visit.query("sort") or "name", visit.query("order") == "desc"
    models = price_list(visit.settings, account)
    rows = price_rows(
        models, search=visit.query("q"), endpoint=visit.query("endpoint"), sort=sort, descending=descending
    )
    values: dict[str, Any] = {
        "account": account,
        "rows": rows,
        "known": len(models),
        "unreadable": [model["id"] for model in models if model["unreadable"]],
        "search": visit.query("q"),
        "endpoint": visit.query("endpoint"),
        "endpoints": [name for name in ENDPOINTS if any(name in model["endpoints"] for model in models)],
        "sort": sort,
        "descending": descending,
        "sorts": SORTS,
        "other_prices": other_prices,
        "capabilities": capabilities,
    }
    return View("prices.html", "Prices", values)


ROUTES = (
    PageRoute(method="GET", path="/accounts/{account}/prices", audience="member", function=of_account, menu="Prices"),
    PageRoute(method="GET", path="/prices", audience="public", function=public, is_open=is_open, menu="Price list"),
)
