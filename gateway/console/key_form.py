"""The form of a key's settings: what was typed as the services take it."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import KeyRecord
from gateway.admin.model_names import known_models
from gateway.amounts import format_amount
from gateway.console.fields import amount_field, count_field
from gateway.console.visit import Visit
from gateway.errors import InvalidValue

COUNTS = {"rpm": "Requests per minute", "tpm": "Tokens per minute", "concurrency": "Calls at the same time"}
AMOUNTS = {"budget": "Budget", "max_cost": "Most for one call"}


def key_limits(visit: Visit, key: KeyRecord | None = None) -> tuple[KeyLimits, list[str]]:
    """The limits to set, and the names of those to remove from `key`; InvalidValue."""
    values: dict[str, Any] = {}
    for name, label in COUNTS.items():
        values[name] = count_field(visit, name, label)
    for name, label in AMOUNTS.items():
        values[name] = amount_field(visit, name, label)
    values["every"] = visit.text("every") or None if values["budget"] is not None else None
    values["expires"] = _expires(visit.text("expires"), key)
    values["models"] = known_models(visit.settings, visit.texts("models"), also=_stored(key)) or None
    values["endpoints"] = visit.texts("endpoints") or None
    values["addresses"] = visit.text("addresses").replace(",", " ").split() or None
    limits: KeyLimits = {}
    limits.update({name: value for name, value in values.items() if value is not None})  # type: ignore[typeddict-item]
    clear = [name for name, value in values.items() if value is None and _is_set(key, name)]
    if key is not None and "expires" in limits and key.expires == limits["expires"]:
        del limits["expires"]  # it may have passed already
    return limits, clear


def key_values(key: KeyRecord | None) -> dict[str, Any]:
    """What the fields show for a key, or for a new one."""
    if key is None:
        return dict.fromkeys(("name", *COUNTS, *AMOUNTS, "every", "expires", "addresses"), "") | {
            "models": [],
            "endpoints": [],
        }
    return {
        "name": key.name,
        **{name: "" if getattr(key, name) is None else str(getattr(key, name)) for name in COUNTS},
        **{name: "" if getattr(key, name) is None else format_amount(getattr(key, name)) for name in AMOUNTS},
        "every": key.every or "",
        "expires": f"{key.expires:%Y-%m-%d}" if key.expires is not None else "",
        "addresses": " ".join(key.addresses or ()),
        "models": key.models or [],
        "endpoints": key.endpoints or [],
    }


def _expires(text: str, key: KeyRecord | None) -> datetime | None:
    """The beginning of the day in UTC; an unchanged day keeps its time."""
    if not text:
        return None
    if key is not None and key.expires is not None and text == f"{key.expires:%Y-%m-%d}":
        return key.expires
    try:
        day = date.fromisoformat(text)
    except ValueError:
        raise InvalidValue("A date is written as 2026-01-31", param="expires") from None
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


def _stored(key: KeyRecord | None) -> list[str]:
    return (key.models or []) if key is not None else []


def _is_set(key: KeyRecord | None, name: str) -> bool:
    return key is not None and getattr(key, name) is not None
