"""The form of a key's settings: what was typed as the services take it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any

from gateway.accounts.key_record import KeyRecord
from gateway.accounts.key_settings import AMOUNTS, COUNTS, KEY_SETTINGS, KeyLimits, KeySetting, Kind
from gateway.admin.model_names import known_models
from gateway.admin.times import day
from gateway.amounts import format_amount
from gateway.console.choices import chosen_models
from gateway.console.elements import amount_text, counted_text, number_text
from gateway.console.fields import amount_field, count_field
from gateway.console.visit import Visit
from gateway.errors import InvalidValue

READERS: dict[Kind, Callable[[Visit, str, str], int | None]] = {"count": count_field, "amount": amount_field}


def key_limits(visit: Visit, key: KeyRecord | None = None) -> tuple[KeyLimits, list[str]]:
    """The limits to set, and the names of those to remove from `key`; InvalidValue."""
    values: dict[str, Any] = {}
    for setting in KEY_SETTINGS:
        if setting.kind in READERS:
            values[setting.name] = READERS[setting.kind](visit, setting.name, setting.label)
    values["every"] = visit.text("every") or None if values["budget"] is not None else None
    values["expires"] = _expires(visit.text("expires"), key)
    values["models"] = known_models(visit.settings, chosen_models(visit), also=_stored(key)) or None
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
        return day(text)
    except ValueError:
        raise InvalidValue("A date is written as 2026-01-31", param="expires") from None


def _stored(key: KeyRecord | None) -> list[str]:
    return (key.models or []) if key is not None else []


def _is_set(key: KeyRecord | None, name: str) -> bool:
    return key is not None and getattr(key, name) is not None


#: What the page of a key says of a setting that it does not have, by the kind; others are shown above.
UNLIMITED: dict[Kind, str] = {
    "count": "none",
    "amount": "none",
    "models": "all of the account",
    "endpoints": "all",
    "networks": "all",
}


def own_limits(key: KeyRecord) -> list[tuple[str, str]]:
    """The settings of a key for its page, but for the budget and the expiry: labels and texts."""
    return [
        (setting.label, _text(key, setting) or UNLIMITED[setting.kind])
        for setting in KEY_SETTINGS
        if setting.kind in UNLIMITED and setting.name != "budget"
    ]


def short_limits(key: KeyRecord) -> list[str]:
    """The settings that a key has, but for the expiry, each as a few words for a list of keys."""
    found = list[str]()
    if key.budget is not None:
        spent = f"{amount_text(key.period_spent or 0)} of {amount_text(key.budget)}"
        found.append(f"{spent} per {key.every}" if key.every else spent)
    for setting in KEY_SETTINGS:
        value = getattr(key, setting.name)
        if value is not None and setting.name in SHORT:
            found.append(SHORT[setting.name](value))
        elif value is not None and setting.kind in UNLIMITED and setting.name != "budget":
            found.append(f"{setting.label}: {_text(key, setting)}")
    return found


#: A setting in a list of keys; those that are not here have their label.
SHORT: dict[str, Callable[[Any], str]] = {
    "models": lambda names: counted_text(len(names), "model"),
    "rpm": lambda most: f"{counted_text(most, 'request')}/min",
    "tpm": lambda most: f"{counted_text(most, 'token')}/min",
    "concurrency": lambda most: f"{most:,} at once",
    "max_cost": lambda most: f"{amount_text(most)} per call",
    "max_session_cost": lambda most: f"{amount_text(most)} per session",
    "endpoints": ", ".join,
    "addresses": lambda networks: counted_text(len(networks), "address range"),
}


def _text(key: KeyRecord, setting: KeySetting) -> str:
    value = getattr(key, setting.name)
    if value is None:
        return ""
    if setting.kind == "count":
        return number_text(value)
    return amount_text(value) if setting.kind == "amount" else ", ".join(value)
