"""The models of the configuration as documents: targets, groups, prices and health."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from msgspec import structs

from gateway.accounts.accounts import time_text
from gateway.amounts import NANO, format_amount
from gateway.billing.price import Price, price_on
from gateway.billing.price_form import later_price_forms, price_form
from gateway.billing.price_terms import OwnPrice, UnreadablePrice
from gateway.config.settings import ModelSettings, Settings, TargetSettings
from gateway.routing.circuit_breaker import CircuitKey
from gateway.routing.circuit_sync import CircuitEvent


def model_form(name: str, model: ModelSettings, own: OwnPrice | UnreadablePrice | None = None) -> dict[str, Any]:
    """A model as JSON; `provider` and `model` are those of the first target, `price` the one that holds today.

    With `own` the prices are those of an account, and `price_factor` is the factor that they contain. An `unreadable`
    price has no amounts.
    """
    if isinstance(own, UnreadablePrice):
        return {**model_form(name, model), "price": {}, "price_version": "", "later_prices": [], "unreadable": True}
    targets = [_target_form(name, target) for target in model.all_targets]
    listed = [own.replaced(price) for price in model.price or (None,)] if own is not None else model.price or ()
    factor = own.factor if own is not None else NANO
    prices = tuple((Price.of(price), price) for price in listed if price is not None)
    holds = price_on(tuple(price for price, _ in prices), time.time()) if prices else None
    return {
        "id": name,
        "provider": targets[0]["provider"],
        "model": targets[0]["model"],
        "groups": list(model.groups),
        "price": next((price_form(settings, factor) for price, settings in prices if price is holds), {}),
        "price_version": holds.version if holds else "",
        **({"price_factor": format_amount(factor), "unreadable": False} if own is not None else {}),
        "later_prices": later_price_forms(prices, holds, factor) if holds else [],
        "targets": targets,
        "fallbacks": list(model.fallbacks),
        "aliases": list(model.aliases),
        "endpoints": list(model.endpoints),
    }


def _target_form(name: str, target: TargetSettings) -> dict[str, Any]:
    form = {**structs.asdict(target), "model": target.model or name}
    costs = form.pop("cost") or ()
    if costs:
        prices = tuple(map(Price.of, costs))
        form["cost"] = price_form(costs[prices.index(price_on(prices, time.time()))])
    return form


def health_forms(
    settings: Settings, events: Iterable[CircuitEvent], now: float, *, first: str = ""
) -> Iterator[dict[str, Any]]:
    """Each target of each model with each credential: `ok`, `open` until a moment, or `due` for a probe.

    In the order of the models' names, from `first` on. Credentials are counted from 1.
    """
    longest = _longest_open(events, now)
    for name in sorted(name for name in settings.models if name >= first):
        for target in settings.models[name].all_targets:
            provider, upstream = target.provider, target.model or name
            for credential in range(settings.providers[provider].instances):
                keys = circuit_keys(provider, credential, upstream) if longest else ()
                open_ones = [longest[key] for key in keys if key in longest]
                found = max(open_ones, key=lambda item: item.left(now), default=None)
                yield {
                    "model": name,
                    "provider": provider,
                    "credential": credential + 1,
                    "upstream_model": upstream,
                    "state": "ok" if found is None else "open" if found.left(now) > 0 else "due",
                    "cause": found.cause if found else "",
                    "until": time_text(datetime.fromtimestamp(found.at + found.seconds, UTC)) if found else "",
                }


def _longest_open(events: Iterable[CircuitEvent], now: float) -> dict[CircuitKey, CircuitEvent]:
    """Of each circuit the event that keeps it open longest, of every capability and every machine."""
    longest: dict[CircuitKey, CircuitEvent] = {}
    for event in events:
        key = structs.replace(event.key, capability="")
        if key not in longest or event.left(now) > longest[key].left(now):
            longest[key] = event
    return longest


def circuit_keys(provider: str, credential: int, upstream: str) -> set[CircuitKey]:
    """The circuits that decide whether a target is called: its own, its credential's, its provider's."""
    return {CircuitKey(provider), CircuitKey(provider, credential), CircuitKey(provider, credential, upstream)}
