"""The settings of a key, checked, and as the fields of its Redis hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Literal, TypedDict, get_args

from gateway.accounts.accounts import Refused, check_model, time_text
from gateway.accounts.key_scopes import Scopes, networks, read_scopes
from gateway.amounts import MAX_AMOUNT, format_amount
from gateway.config.settings import Endpoint
from gateway.ledger.periods import Every

MAX_LIMIT = 1_000_000_000
MAX_NAME = 100
ENDPOINTS: tuple[str, ...] = get_args(Endpoint)
MAX_NETWORKS = 64

#: Settings by their names, with their fields in the store. Those without a field of their own are in `scopes`.
CLEARABLE: Mapping[str, str] = {
    "rpm": "rpm",
    "tpm": "tpm",
    "concurrency": "conc",
    "models": "models",
    "budget": "cap",
    "every": "every",
    "expires": "exp",
    "max_cost": "max",
    "endpoints": "scopes",
    "addresses": "scopes",
}


class KeyLimits(TypedDict, total=False):
    """What a key may do; an absent or None limit does not exist, or stays as it is."""

    rpm: int | None
    tpm: int | None
    concurrency: int | None
    models: Iterable[str] | None
    budget: int | None  # nano-units
    every: Every | Literal["never"] | None  # the period of the budget; by default it has none
    expires: datetime | None
    max_cost: int | None  # nano-units; the most that one call may hold
    endpoints: Iterable[str] | None
    addresses: Iterable[str] | None  # networks in CIDR form


def key_fields(limits: KeyLimits, *, now: int, scopes: str = "") -> dict[str, str | int]:
    """The fields to store; "" for one to remove. `scopes` are the stored ones, `now` the store's time in seconds.

    Refused for a value that is not possible.
    """
    fields: dict[str, str | int] = {}
    for field, value in (("rpm", limits.get("rpm")), ("tpm", limits.get("tpm")), ("conc", limits.get("concurrency"))):
        if value is not None:
            if not 1 <= value <= MAX_LIMIT:
                raise Refused(f"{field} must lie between 1 and {MAX_LIMIT}")
            fields[field] = value
    for field, what, amount in (("cap", "budget", limits.get("budget")), ("max", "cost", limits.get("max_cost"))):
        if amount is not None:
            if not 0 < amount <= MAX_AMOUNT:
                raise Refused(f"a {what} of {format_amount(amount)} is not possible")
            fields[field] = amount
    if (every := limits.get("every")) is not None:
        if every not in (*get_args(Every), "never"):
            raise Refused(f"{every!r} is no period; known: {', '.join(get_args(Every))}, never")
        fields["every"] = "" if every == "never" else every
    if (models := limits.get("models")) is not None:
        fields["models"] = _models_text(models)
    if (expires := limits.get("expires")) is not None:
        moment = int(expires.timestamp())
        if moment <= now:
            raise Refused(f"{time_text(expires)} has passed already")
        fields["exp"] = moment
    if limits.get("endpoints") is not None or limits.get("addresses") is not None:
        fields["scopes"] = _scopes_text(limits, read_scopes(scopes))
    return fields


def check_key_name(name: str) -> None:
    """Refuse a name of a key that cannot be shown."""
    if len(name) > MAX_NAME or not name.isprintable():
        raise Refused(f"a key's name is at most {MAX_NAME} printable characters")


def _models_text(models: Iterable[str]) -> str:
    names = list(dict.fromkeys(models))
    if not names:
        raise Refused("an empty list of models would permit nothing")
    for model in names:
        check_model(model)
    return "\n" + "\n".join(names) + "\n"  # admit.lua looks for "\nmodel\n"


def _scopes_text(limits: KeyLimits, before: Scopes) -> str:
    endpoints, addresses = before.endpoints, before.addresses
    if (names := limits.get("endpoints")) is not None:
        endpoints = tuple(dict.fromkeys(names))
        for name in endpoints:
            if name not in ENDPOINTS:
                raise Refused(f"{name!r} is no endpoint; known: {', '.join(ENDPOINTS)}")
    if (ranges := limits.get("addresses")) is not None:
        try:
            addresses = networks(ranges)
        except ValueError as error:
            raise Refused(f"not an address range: {error}") from None
        if len(addresses) > MAX_NETWORKS:
            raise Refused(f"at most {MAX_NETWORKS} address ranges are possible")
    return Scopes(endpoints, addresses).text()
