"""`/site/providers`: all of them; `/site/providers/{provider}`: one with its state, last failures and models."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from gateway.admin.models import model_form
from gateway.attention.provider_rules import provider_page
from gateway.console.numbered_pages import numbered_page
from gateway.console.pages.site_home import RANGES, chosen, provider_rows, upstream_calls
from gateway.console.performance_chart import performance_table
from gateway.console.price_rows import other_prices
from gateway.console.replies import Reply, View
from gateway.console.route import PageRoute
from gateway.console.visit import Visit
from gateway.errors import GatewayError, NotFound
from gateway.inference.recent_failures import Failure, read_failures
from gateway.reports.provider_health import open_circuits, provider_forms
from gateway.reports.site_health import ProviderHealth, SiteHealth, provider_health, site_health
from gateway.routing.circuit_registry import EXPLAINED

PATH = "/site/providers"
MOST_FAILURES = 25


async def providers(visit: Visit) -> Reply:
    name, (_, length, period) = chosen(visit)
    people, now = await visit.people(), datetime.now(UTC)

    async def read() -> SiteHealth:
        return await site_health(visit.actor, people.transactions, now - length, now, period)

    health = await visit.services.recent.get(("site_health", name), read)
    circuits = open_circuits(visit.settings, visit.services.attention.circuits)
    rows = provider_rows(visit, health, circuits)
    values = {
        "labels": {key: label for key, (label, _, _) in RANGES.items()},
        "chosen": name,
        "shown": numbered_page(rows, visit.query("page")),
        "known": visit.settings.providers,
        "health": health,
        "page_of": provider_page,
    }
    return View("site_providers.html", "Providers", values)


async def provider(visit: Visit, provider: str) -> Reply:
    settings = visit.settings.providers.get(provider)
    name, (_, length, period) = chosen(visit)
    people, now = await visit.people(), datetime.now(UTC)
    health = await provider_health(visit.actor, people.transactions, provider, now - length, now, period)
    failures, is_known = await _failures(visit, provider)
    if settings is None and not health.served.calls and not failures:
        raise NotFound(f"There is no provider {provider!r}")
    forms = await provider_forms(visit.actor, visit.settings, visit.store.store, provider)
    shown = numbered_page(sorted({form["model"] for form in forms}), visit.query("page"))
    values = {
        "name": provider,
        "settings": settings,
        "labels": {key: label for key, (label, _, _) in RANGES.items()},
        "chosen": name,
        "health": health,
        "chart": performance_table(health.period, health.points),
        "circuits": [
            one for one in open_circuits(visit.settings, visit.services.attention.circuits) if one.provider == provider
        ],
        "calls_now": upstream_calls(visit.services.machines.found)[provider],
        "in_use": sum(form["state"] == "ok" for form in forms),
        "targets": len(forms),
        "shown": shown,
        "models": [_model_row(visit, model, provider, forms, health) for model in shown.rows],
        "other_prices": other_prices,
        "failures": failures,
        "failures_known": is_known,
        "at": lambda seconds: datetime.fromtimestamp(seconds, UTC),
    }
    return View("site_provider.html", f"Provider {provider}", values)


async def _failures(visit: Visit, provider: str) -> tuple[list[Failure], bool]:
    """The last failures; False without the store."""
    try:
        return await read_failures(visit.store.store, provider, MOST_FAILURES), True
    except GatewayError:
        return [], False


def _model_row(
    visit: Visit, name: str, provider: str, forms: list[dict[str, Any]], health: ProviderHealth
) -> dict[str, Any]:
    """A model with its list price, with the state of its targets here, and with what its calls cost and were like."""
    own = [form for form in forms if form["model"] == name]
    unused = [form for form in own if form["state"] != "ok"]
    form = model_form(name, visit.settings.models[name])
    costs = [target["cost"] for target in form["targets"] if target["provider"] == provider and "cost" in target]
    return {
        **form,
        "upstream": sorted({one["upstream_model"] for one in own} - {name}),
        "known": len(own),
        "unused": unused,
        "reasons": sorted({EXPLAINED.get(one["cause"], one["cause"]) for one in unused}),
        "cost": costs[0] if costs else {},
        "served": health.models.get(name),
    }


ROUTES = (
    PageRoute(
        method="GET",
        path=PATH,
        audience="viewer",
        function=providers,
        help="console#providers",
        menu="Providers",
        group="Models",
    ),
    PageRoute(
        method="GET", path=f"{PATH}/{{provider}}", audience="viewer", function=provider, help="console#providers"
    ),
)
