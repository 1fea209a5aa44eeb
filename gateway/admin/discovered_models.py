"""The lists of providers as documents: how the questions ended, and what becomes of each model."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from gateway.admin.times import time_text
from gateway.amounts import format_amount
from gateway.config.pattern_models import SERVED
from gateway.discovery.discovered import Discovered, ProviderModels


def provider_forms(found: Discovered) -> list[dict[str, Any]]:
    """Each provider that is asked for its list, in the order of the configuration."""
    return [_provider_form(one) for one in found.providers]


def _provider_form(one: ProviderModels) -> dict[str, Any]:
    counts = one.counts()
    return {
        "provider": one.provider,
        "state": list_state(one),
        "served": counts.pop(SERVED, 0),
        "not_served": dict(sorted(counts.items())),
        "last_success": _time(one.state.at),
        "last_failure": _time(one.state.failed_at),
        "error": one.state.error,
    }


def list_state(one: ProviderModels) -> str:
    """`ok`; `failing` while the last good list is served; `expired` when that is too old; `waiting` without a list."""
    if one.is_usable:
        return "failing" if one.state.error else "ok"
    if one.state.version:
        return "expired"
    return "failing" if one.state.error else "waiting"


def discovered_forms(found: Discovered, *, after: tuple[str, str] = ("", "")) -> Iterator[dict[str, Any]]:
    """Each model of each list after that provider and upstream's name, by both."""
    for one in sorted(found.providers, key=lambda one: one.provider):
        for model in sorted(one.models, key=lambda model: model.upstream):
            if (one.provider, model.upstream) <= after:
                continue
            listed = one.listed[model.upstream]
            yield {
                "provider": one.provider,
                "upstream_model": model.upstream,
                "id": model.name,
                "pattern": model.pattern,
                "state": model.state,
                "detail": model.detail,
                "price": _amounts(listed.amounts or {}),
                "since": listed.since,
                "earlier": [{"since": past.since, "price": _amounts(past.amounts)} for past in listed.earlier],
            }


def _amounts(amounts: dict[str, int]) -> dict[str, str]:
    return {name: format_amount(amount) for name, amount in amounts.items()}


def _time(moment: float) -> str:
    return (time_text(datetime.fromtimestamp(moment, UTC)) or "") if moment else ""
