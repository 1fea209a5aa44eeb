"""The settings of a key, checked, and as the fields of its Redis hash."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict, cast, get_args

from msgspec import Struct

from gateway.accounts.accounts import check_model, time_text
from gateway.accounts.key_scopes import Scopes, networks, read_scopes
from gateway.amounts import MAX_AMOUNT, format_amount
from gateway.config.settings import Endpoint
from gateway.errors import InvalidValue
from gateway.ledger.periods import Every

MAX_LIMIT = 1_000_000_000
MAX_NAME = 100
ENDPOINTS: tuple[str, ...] = get_args(Endpoint)
MAX_NETWORKS = 64
PERIODS: tuple[str, ...] = get_args(Every)

Kind = Literal["count", "amount", "period", "models", "endpoints", "networks", "moment"]


class KeySetting(Struct, frozen=True):
    """A setting that a key may have.

    Command line, CSV files, forms, the admin API and the documentation of each take it from here.
    """

    name: str  # in the API and in files; with - for _ on the command line
    field: str  # in the key's hash, and as the argument of the scripts; settings may share one
    kind: Kind
    label: str  # on pages
    help: str
    is_own: bool = False  # admissions read it only if the hash has the field `own`


KEY_SETTINGS = (
    KeySetting("rpm", "rpm", "count", "Requests per minute", "Requests per minute."),
    KeySetting("tpm", "tpm", "count", "Tokens per minute", "Tokens per minute."),
    KeySetting("concurrency", "conc", "count", "Calls at the same time", "Calls at the same time."),
    KeySetting("models", "models", "models", "Models", "The only models it may use."),
    KeySetting("budget", "cap", "amount", "Budget", "What it may spend, in all or in a period."),
    KeySetting("every", "every", "period", "Budget for", "The period of the budget, in UTC.", is_own=True),
    KeySetting("expires", "exp", "moment", "Expires", "An RFC 3339 time, or a duration: 30d, 12h, 45m."),
    KeySetting("max_cost", "max", "amount", "Most for one call", "The most that one call may hold.", is_own=True),
    KeySetting(
        "max_session_cost",
        "smax",
        "amount",
        "Most for one session",
        "The most that the calls of one session may cost in a day.",
        is_own=True,
    ),
    KeySetting("endpoints", "scopes", "endpoints", "Endpoints", "The only endpoints it may call.", is_own=True),
    KeySetting(
        "addresses", "scopes", "networks", "Addresses", "The only client addresses it may be used from.", is_own=True
    ),
)
#: Settings by their names, with their fields in the store.
CLEARABLE: Mapping[str, str] = {setting.name: setting.field for setting in KEY_SETTINGS}
AMOUNTS = tuple(setting.name for setting in KEY_SETTINGS if setting.kind == "amount")
COUNTS = tuple(setting.name for setting in KEY_SETTINGS if setting.kind == "count")
#: Fields that admissions read only if `own` is set: those of settings, what a rotation left, and the user.
OWN = frozenset({"base", "user"} | {setting.field for setting in KEY_SETTINGS if setting.is_own})


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
    max_session_cost: int | None  # nano-units; the most that the calls of a session may cost in a day
    endpoints: Iterable[str] | None
    addresses: Iterable[str] | None  # networks in CIDR form


def key_fields(limits: KeyLimits, *, now: int = 0, scopes: str = "") -> dict[str, str | int]:
    """The fields to store; "" for one to remove. `scopes` are the stored ones.

    `now`: the store's time in seconds; without it, an expiry may have passed.

    InvalidValue for one that is not possible.
    """
    given = cast("Mapping[str, Any]", limits)
    fields: dict[str, str | int] = {}
    for setting in KEY_SETTINGS:
        if given.get(setting.name) is not None and setting.field != "scopes":
            fields[setting.field] = _stored(setting, given[setting.name])
    if 0 < int(fields.get("exp", 0)) <= now:
        raise passed(int(fields["exp"]))
    if limits.get("endpoints") is not None or limits.get("addresses") is not None:
        fields["scopes"] = _scopes_text(limits, read_scopes(scopes))
    return fields


def _stored(setting: KeySetting, value: Any) -> str | int:
    match setting.kind:
        case "count":
            if not 1 <= value <= MAX_LIMIT:
                raise InvalidValue(f"{setting.name} must lie between 1 and {MAX_LIMIT}")
            return int(value)
        case "amount":
            if not 0 < value <= MAX_AMOUNT:
                what = setting.name.removeprefix("max_").replace("_", " ")
                raise InvalidValue(f"a {what} of {format_amount(value)} is not possible")
            return int(value)
        case "period":
            if value not in (*PERIODS, "never"):
                raise InvalidValue(f"{value!r} is no period; known: {', '.join(PERIODS)}, never")
            return "" if value == "never" else str(value)
        case "moment":
            return int(value.timestamp())
        case _:
            return _models_text(value)


def passed(moment: int) -> InvalidValue:
    """The refusal of an expiry in the past; Unix seconds."""
    return InvalidValue(f"{time_text(datetime.fromtimestamp(moment, UTC))} has passed already")


def check_key_name(name: str) -> None:
    """InvalidValue for a name that cannot be shown."""
    if len(name) > MAX_NAME or not name.isprintable():
        raise InvalidValue(f"a key's name is at most {MAX_NAME} printable characters")


def _models_text(models: Iterable[str]) -> str:
    names = list(dict.fromkeys(models))
    if not names:
        raise InvalidValue("an empty list of models would permit nothing")
    for model in names:
        check_model(model)
    return "\n" + "\n".join(names) + "\n"  # admit.lua looks for "\nmodel\n"


def _scopes_text(limits: KeyLimits, before: Scopes) -> str:
    endpoints, addresses = before.endpoints, before.addresses
    if (names := limits.get("endpoints")) is not None:
        endpoints = tuple(dict.fromkeys(names))
        for name in endpoints:
            if name not in ENDPOINTS:
                raise InvalidValue(f"{name!r} is no endpoint; known: {', '.join(ENDPOINTS)}")
    if (ranges := limits.get("addresses")) is not None:
        try:
            addresses = networks(ranges)
        except ValueError as error:
            raise InvalidValue(f"not an address range: {error}") from None
        if len(addresses) > MAX_NETWORKS:
            raise InvalidValue(f"at most {MAX_NETWORKS} address ranges are possible")
    return Scopes(endpoints, addresses).text()
