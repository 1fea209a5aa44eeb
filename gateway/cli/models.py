"""`gateway models`: what the configuration serves, from where, to whom, at which price."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import click
from msgspec import structs

from gateway.accounts.accounts import time_text
from gateway.amounts import format_amount
from gateway.billing.price import Price, price_on
from gateway.cli.configuration import configured
from gateway.cli.output import print_json, print_rows, print_table
from gateway.cli.session import run
from gateway.config.settings import ModelSettings, PriceSettings, Settings
from gateway.routing.circuit_breaker import CircuitKey
from gateway.routing.circuit_sync import CircuitEvent, read_circuit_events

COLUMNS = ("id", "endpoints", "provider", "model", "groups", "price", "price_version")


HEALTH_COLUMNS = ("model", "provider", "credential", "upstream_model", "state", "cause", "until")


@click.command()
@click.option("--health", "with_health", is_flag=True, help="How every target fares, as the running gateway found out.")
@configured
def command(settings: Settings, with_health: bool, as_json: bool) -> None:
    """What is served."""
    if with_health:
        _print_health(settings, as_json)
        return
    records = [model_form(name, model) for name, model in sorted(settings.models.items())]
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
                "price": record["price"] or "free",
            }
            for record in records
        ),
    )


def model_form(name: str, model: ModelSettings) -> dict[str, Any]:
    """A model as JSON; `provider` and `model` are those of the first target, `price` the one that holds today."""
    targets = [{**structs.asdict(target), "model": target.model or name} for target in model.all_targets]
    prices = tuple((Price.of(price), price) for price in model.price or ())
    holds = price_on(tuple(price for price, _ in prices), time.time()) if prices else None
    return {
        "id": name,
        "provider": targets[0]["provider"],
        "model": targets[0]["model"],
        "groups": list(model.groups),
        "price": next((price_form(settings) for price, settings in prices if price is holds), {}),
        "price_version": holds.version if holds else "",
        "later_prices": [
            {**price_form(settings), "version": price.version}
            for price, settings in prices
            if holds and price.effective_from > holds.effective_from
        ],
        "targets": targets,
        "fallbacks": list(model.fallbacks),
        "aliases": list(model.aliases),
        "endpoints": list(model.endpoints),
    }


def _print_health(settings: Settings, as_json: bool) -> None:
    events = run(settings, lambda session: read_circuit_events(session.store))
    print_rows(HEALTH_COLUMNS, health_forms(settings, events, time.time()), as_json=as_json)


def health_forms(settings: Settings, events: list[CircuitEvent], now: float) -> list[dict[str, Any]]:
    """Each target of each model with each credential: `ok`, `open` until a moment, or `due` for a probe."""
    rows = []
    for name, model in sorted(settings.models.items()):
        for provider, upstream in ((target.provider, target.model or name) for target in model.all_targets):
            for credential in range(settings.providers[provider].instances):
                keys = {
                    CircuitKey(provider),
                    CircuitKey(provider, credential),
                    CircuitKey(provider, credential, upstream),
                }
                # Of every capability and every machine.
                open_ones = [item for item in events if structs.replace(item.key, capability="") in keys]
                found = max(open_ones, key=lambda item: item.left(now), default=None)
                rows.append(
                    {
                        "model": name,
                        "provider": provider,
                        "credential": credential,
                        "upstream_model": upstream,
                        "state": "ok" if found is None else "open" if found.left(now) > 0 else "due",
                        "cause": found.cause if found else "",
                        "until": time_text(datetime.fromtimestamp(found.at + found.seconds, UTC)) if found else "",
                    }
                )
    return rows


def price_form(price: PriceSettings) -> dict[str, Any]:
    """A price as decimal texts."""
    form: dict[str, Any] = {name: format_amount(amount) for name, amount in price.amounts().items()}
    if price.per_image:
        form["per_image"] = {
            size: {quality: format_amount(amount) for quality, amount in amounts.items()}
            for size, amounts in price.per_image.items()
        }
    if price.tiers:
        form["tiers"] = [
            {
                "above_input_tokens": tier.above_input_tokens,
                **{name: format_amount(amount) for name, amount in tier.amounts().items()},
            }
            for tier in price.tiers
        ]
    if price.service_tier_multiplier:
        form["service_tier_multiplier"] = {name: str(value) for name, value in price.service_tier_multiplier.items()}
    if price.currency:
        form["currency"] = price.currency
    if price.effective_from:
        form["effective_from"] = price.effective_from
    return form
