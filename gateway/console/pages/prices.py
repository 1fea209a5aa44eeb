"""`/accounts/{account}/prices`: what the account pays for each model; `/prices`: the price list, if it is public."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from decimal import Decimal
from functools import partial
from typing import Any

from gateway.accounts.accounts import Account
from gateway.accounts.key_settings import ENDPOINTS
from gateway.admin.price_list import permitted_models, price_list, unreadable_prices
from gateway.config.settings import ModelSettings, Settings
from gateway.console.numbered_pages import numbered_page
from gateway.console.price_rows import SORTS, capabilities, fitting_models, in_order, other_prices
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.web.work_threads import PAGES


async def of_account(visit: Visit, account: str) -> Reply:
    return await _page(visit, await visit.store.accounts.show(account))


async def public(visit: Visit) -> Reply:
    return await _page(visit, None)


def is_open(visit: Visit) -> bool:
    """Without `public_prices` the price list is for people who are signed in."""
    return visit.settings.console.public_prices or visit.is_signed_in


async def _page(visit: Visit, account: Account | None) -> Reply:
    sort, descending = visit.query("sort") or "name", visit.query("order") == "desc"
    models = permitted_models(visit.settings, account)
    fitting = fitting_models(models, search=visit.query("q"), endpoint=visit.query("endpoint"))
    value = _value(visit.settings, account, models, sort)
    shown = numbered_page(
        await PAGES.run(partial(in_order, fitting, value, descending=descending)), visit.query("page")
    )
    values: dict[str, Any] = {
        "account": account,
        "rows": price_list(visit.settings, account, {name: models[name] for name in shown.rows}),
        "shown": shown,
        "known": len(models),
        "unreadable": [name for name in unreadable_prices(account) if name in models],
        "search": visit.query("q"),
        "endpoint": visit.query("endpoint"),
        "endpoints": [name for name in ENDPOINTS if any(name in model.endpoints for model in models.values())],
        "sort": sort,
        "descending": descending,
        "sorts": SORTS,
        "other_prices": other_prices,
        "capabilities": capabilities,
    }
    return View("prices.html", "Prices", values)


def _value(
    settings: Settings, account: Account | None, models: Mapping[str, ModelSettings], sort: str
) -> Callable[[str], Any]:
    """What the models are sorted by; None for a model that does not have it."""

    def amount(name: str) -> Decimal | None:
        (form,) = price_list(settings, account, {name: models[name]})
        return Decimal(form["price"][sort]) if sort in form["price"] else None

    match sort:
        case "input" | "output":
            return amount
        case "context":
            return lambda name: models[name].context_window
    return str


ROUTES = (
    PageRoute(
        method="GET",
        path="/accounts/{account}/prices",
        audience="member",
        function=of_account,
        help="prices#prices-of-accounts",
        menu="Prices",
    ),
)
OF_SITE = (
    PageRoute(
        method="GET",
        path="/prices",
        audience="public",
        function=public,
        help="prices#what-is-charged",
        is_open=is_open,
        menu="Price list",
        group="Models",
    ),
)
