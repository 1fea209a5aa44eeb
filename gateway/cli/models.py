"""`gateway models`: what the configuration serves, from where, to whom, at which price."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from gateway.admin.discovered_models import discovered_forms, provider_forms
from gateway.admin.models import health_forms, model_form
from gateway.admin.price_list import price_terms
from gateway.billing.price_terms import LIST_PRICES, PriceTerms
from gateway.cli.output import cell, note, print_json, print_rows, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import either, run
from gateway.discovery.list_reader import read_discovered
from gateway.routing.circuit_sync import read_circuit_events

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings

COLUMNS = ("id", "endpoints", "provider", "model", "groups", "price", "price_version", "later_prices")


DISCOVERED_COLUMNS = ("provider", "upstream_model", "id", "state", "detail", "price", "since")
HEALTH_COLUMNS = ("model", "provider", "credential", "upstream_model", "state", "cause", "until")


@click.command()
@click.option("--health", "with_health", is_flag=True, help="The state of every target in the running gateway.")
@click.option(
    "--discovered", is_flag=True, help="What the providers with `discover` list, and why a model is not served."
)
@click.option("--account", metavar="NAME", help="The prices that this account pays.")
@remotable
def command(settings: Settings, with_health: bool, discovered: bool, account: str | None, as_json: bool) -> None:
    """What is served."""
    if with_health + discovered + (account is not None) > 1:
        raise click.UsageError("--health, --discovered and --account exclude each other")
    if discovered:
        _print_discovered(settings, as_json)
        return
    if with_health:
        _print_health(settings, as_json)
        return

    def here() -> list[dict[str, Any]]:
        if account is None and not settings.discovers:
            return _forms(settings, LIST_PRICES)
        return run(settings, lambda session: _read(session, account))

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        return await client.pages(*(("models",) if account is None else ("accounts", account, "models")))

    records = either(here, there)
    if as_json:
        print_json(records)
        return
    print_table(
        COLUMNS,
        (
            {
                **record,
                "provider": [target["provider"] for target in record["targets"]],
                "model": [target["model"] for target in record["targets"]],
                "price": record["price"] or ("unreadable" if record.get("unreadable") else "free"),
                "later_prices": [_later_text(price) for price in record["later_prices"]],
            }
            for record in records
        ),
    )


def _later_text(price: dict[str, Any]) -> str:
    amounts = {name: value for name, value in price.items() if name not in {"effective_from", "version"}}
    return f"from {price['effective_from']}: {cell(amounts) if amounts else 'free'}"


async def _read(session: StoreSession, account: str | None) -> list[dict[str, Any]]:
    """The models, also those that providers list, with the prices of an account."""
    if account is None:
        return _forms(session.settings, LIST_PRICES)
    return _forms(session.settings, price_terms(session.settings, await session.accounts.show(account)))


def _forms(settings: Settings, terms: PriceTerms) -> list[dict[str, Any]]:
    return [model_form(name, model, terms.of(name)) for name, model in sorted(settings.models.items())]


async def _read_health(session: StoreSession) -> list[dict[str, Any]]:
    events = await read_circuit_events(session.store)
    return list(health_forms(session.settings, events, time.time()))


def _print_health(settings: Settings, as_json: bool) -> None:
    def here() -> list[dict[str, Any]]:
        return run(settings, _read_health)

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        return await client.pages("models", "health")

    print_rows(HEALTH_COLUMNS, either(here, there), as_json=as_json)


def _print_discovered(settings: Settings, as_json: bool) -> None:
    async def read(session: StoreSession) -> dict[str, Any]:
        found = await read_discovered(session.store, settings, time.time())
        return {"providers": provider_forms(found), "models": list(discovered_forms(found))}

    async def there(client: AdminClient) -> dict[str, Any]:
        providers = (await client.get("discovery"))["data"]
        return {"providers": providers, "models": await client.pages("discovery", "models")}

    found = either(lambda: run(settings, read), there)
    if as_json:
        print_json(found)
        return
    for one in found["providers"]:
        note(_provider_line(one))
    print_table(DISCOVERED_COLUMNS, found["models"])


def _provider_line(one: dict[str, Any]) -> str:
    """One provider on one line."""
    left_out = ", ".join(f"{count} {reason}" for reason, count in one["not_served"].items())
    parts = [
        f"{one['provider']}: {one['state']}",
        f"served {one['served']}" + (f", not served: {left_out}" if left_out else ""),
        f"last list {one['last_success'] or 'never'}",
        f"last question failed: {one['error']}" if one["error"] else "",
    ]
    return "; ".join(part for part in parts if part)
