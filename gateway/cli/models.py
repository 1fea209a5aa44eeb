"""`gateway models`: what the configuration serves, from where, to whom, at which price."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from gateway.admin.models import health_forms, model_form
from gateway.admin.price_list import price_terms
from gateway.billing.price_terms import LIST_PRICES, PriceTerms
from gateway.cli.output import cell, print_json, print_rows, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import either, run
from gateway.routing.circuit_sync import read_circuit_events

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings

COLUMNS = ("id", "endpoints", "provider", "model", "groups", "price", "price_version", "later_prices")


HEALTH_COLUMNS = ("model", "provider", "credential", "upstream_model", "state", "cause", "until")


@click.command()
@click.option("--health", "with_health", is_flag=True, help="The state of every target in the running gateway.")
@click.option("--account", metavar="NAME", help="The prices that this account pays.")
@remotable
def command(settings: Settings, with_health: bool, account: str | None, as_json: bool) -> None:
    """What is served."""
    if with_health and account is not None:
        raise click.UsageError("--health and --account exclude each other")
    if with_health:
        _print_health(settings, as_json)
        return

    def here() -> list[dict[str, Any]]:
        terms = run(settings, lambda session: _terms(session, account)) if account is not None else LIST_PRICES
        return [model_form(name, model, terms.of(name)) for name, model in sorted(settings.models.items())]

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


async def _terms(session: StoreSession, account: str) -> PriceTerms:
    return price_terms(session.settings, await session.accounts.show(account))


def _print_health(settings: Settings, as_json: bool) -> None:
    def here() -> list[dict[str, Any]]:
        events = run(settings, lambda session: read_circuit_events(session.store))
        return list(health_forms(settings, events, time.time()))

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        return await client.pages("models", "health")

    print_rows(HEALTH_COLUMNS, either(here, there), as_json=as_json)
