"""What a provider lists is checked here: names, numbers and prices, whatever a server or a plugin says.

A name has letters, digits and a few signs. A price is a number within bounds, in USD. A price that changes by more than
`discover_max_change` times is not used, nor is the old one, until the list has a nearer one or the operator says more.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from itertools import islice
from typing import Any, Final, get_args

from msgspec import Struct, structs

from gateway.amounts import NANO, format_amount
from gateway.config.price_settings import AmountSettings, free_half
from gateway.config.settings import Endpoint
from gateway.discovery.stored_lists import PastPrice, StoredList, StoredModel
from gateway.plugins.model_list import ListedModel

#: Of an upstream's model: organisations, versions and tags, as in `@cf/meta/llama-3:free`.
_NAME = re.compile(r"[A-Za-z0-9@~/_][A-Za-z0-9@~/_.:+=-]{0,199}", re.ASCII)
MOST_PER_MILLION: Final = 100_000 * NANO  # the highest public price is 600
MOST_EACH: Final = 1_000 * NANO  # of a request, a second, a search
#: Of `input` and `output` that are not 0. The lowest public price is 0.003; a server that means one token writes less.
LEAST_PER_MILLION: Final = NANO // 2000
EARLIER: Final = 5  # prices of a model that are kept
MOST_GONE: Final = 5_000
MOST_TOLD: Final = 100  # models of one event of the audit trail: 20 KB
LARGEST_WINDOW: Final = 100_000_000  # tokens
_EACH: Final = frozenset({
    "per_second_in", "per_second_out", "per_request", "per_search_unit", "per_web_search", "minimum"
})  # fmt: skip
_ENDPOINTS: Final[tuple[Endpoint, ...]] = get_args(Endpoint)


class CheckedList(Struct, frozen=True):
    """A list, and how many of its entries are no models, by reason: `name` or `repeated`."""

    found: StoredList
    left_out: dict[str, int]


def checked_list(
    listed: Iterable[object], before: StoredList, *, now: float, max_change: float, keep: float
) -> CheckedList:
    """The list with the models that it has, and those that left it less than `keep` seconds ago."""
    today = datetime.fromtimestamp(now, UTC).date().isoformat()
    known = {one.name: one for one in (*before.gone, *before.models)}
    models: dict[str, StoredModel] = {}
    left_out: dict[str, int] = {}
    for one in listed:
        reason = _no_model(one, models)
        if reason:
            left_out[reason] = left_out.get(reason, 0) + 1
        else:
            assert isinstance(one, ListedModel)
            models[one.name] = _dated(_checked(one), known.get(one.name), today, max_change)
    left = [structs.replace(one, left_at=one.left_at or now) for name, one in known.items() if name not in models]
    gone = sorted((one for one in left if one.amounts and one.left_at > now - keep), key=lambda one: -one.left_at)
    return CheckedList(StoredList(models=tuple(models.values()), gone=tuple(gone[:MOST_GONE])), left_out)


def _no_model(one: object, models: Mapping[str, StoredModel]) -> str:
    if not isinstance(one, ListedModel) or not isinstance(one.name, str) or not _NAME.fullmatch(one.name):
        return "name"
    return "repeated" if one.name in models else ""


def _checked(one: ListedModel) -> StoredModel:
    """The model without its history."""
    endpoints = one.endpoints if isinstance(one.endpoints, (list, tuple)) else ()
    model = StoredModel(
        name=one.name,
        endpoints=tuple(endpoint for endpoint in _ENDPOINTS if endpoint in endpoints[:10]),
        context_window=_number(one.context_window, LARGEST_WINDOW),
        max_output_tokens=_number(one.max_output_tokens, LARGEST_WINDOW),
        created=_number(one.created, 2**40),
    )
    if one.price is None:
        return structs.replace(model, problem="no_price", detail="the list has no price for it")
    try:
        amounts = checked_amounts(one.price)
        _check_least(amounts)
        if half := free_half(amounts, model.endpoints):
            raise ValueError(half)
    except ValueError as error:
        return structs.replace(model, problem="price", detail=f"the list's price: {error}")
    if not any(amounts.values()):
        detail = "the list says that it is free; a pattern of yours has to say free = true"
        return structs.replace(model, problem="free", detail=detail)
    return structs.replace(model, amounts=amounts)


def _number(value: object, most: int) -> int | None:
    """A whole number above zero; None for anything else."""
    if isinstance(value, float) and math.isfinite(value) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else None


def checked_amounts(price: object) -> dict[str, int]:
    """The amounts of a price in nano units, rounded up; ValueError names the key and what is wrong."""
    if not isinstance(price, Mapping):
        raise ValueError("expected a table")
    if len(price) > len(AmountSettings.__struct_fields__):
        raise ValueError("it has more keys than a price")
    amounts = {}
    for name, value in price.items():
        if name not in AmountSettings.__struct_fields__:
            raise ValueError(f"{_shown(name)}: the gateway cannot charge it")
        amounts[str(name)] = _amount(str(name), value)
    return amounts


def _amount(name: str, value: object) -> int:
    most = MOST_EACH if name in _EACH else MOST_PER_MILLION
    try:
        if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)) or len(str(value)) > 60:
            raise InvalidOperation
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        raise ValueError(f"{name}: {_shown(value)} is no number") from None
    if not number.is_finite():
        raise ValueError(f"{name}: {_shown(value)} is no finite number")
    if number < 0:
        raise ValueError(f"{name}: {_shown(value)} is negative")
    if number > most // NANO:
        raise ValueError(f"{name}: {_shown(value)} is more than {most // NANO}")
    return math.ceil(number * NANO)


def _check_least(amounts: Mapping[str, int]) -> None:
    """So little is as good as free."""
    for name in ("input", "output"):
        if 0 < amounts.get(name, 0) < LEAST_PER_MILLION:
            least = format_amount(LEAST_PER_MILLION)
            raise ValueError(f"{name}: {format_amount(amounts[name])} is less than {least} per 1,000,000")


def _shown(value: object) -> str:
    """A value of a server for operators: short, printable."""
    text = "".join(character if character.isprintable() else "?" for character in str(value)[:40])
    return repr(text)


# Changes -------------------------------------------------------------------------------------------------------------


def _dated(now: StoredModel, before: StoredModel | None, today: str, max_change: float) -> StoredModel:
    """The model with the date of its price, and with the prices before."""
    if before is None or before.amounts is None:
        return structs.replace(now, since=today) if now.amounts else now
    if now.amounts is None:  # the price is absent or wrong today: the last good one is kept for comparison alone
        return structs.replace(now, amounts=before.amounts, since=before.since, earlier=before.earlier)
    if now.amounts == before.amounts:
        return structs.replace(now, since=before.since, earlier=before.earlier)
    day_began = _of_yesterday(before, today)
    if detail := (
        _large_change(before.amounts, now.amounts, max_change)
        or _large_change(day_began.amounts, now.amounts, max_change, " within a day")
    ):
        old = {"amounts": before.amounts, "since": before.since, "earlier": before.earlier}
        return structs.replace(now, problem="price_changed", detail=detail, **old)
    earlier = (PastPrice(before.since, before.amounts), *before.earlier)
    if len(earlier) > EARLIER:
        kept = earlier[:EARLIER]
        earlier = kept if day_began in kept else (*kept[:-1], day_began)
    return structs.replace(now, since=today, earlier=earlier)


def _of_yesterday(model: StoredModel, today: str) -> PastPrice:
    """The price with which the day began, or else the first one: many small changes are no way around the bound."""
    prices = (PastPrice(model.since, model.amounts or {}), *model.earlier)
    return next((one for one in prices if one.since < today), prices[-1])


def _large_change(before: Mapping[str, int], now: Mapping[str, int], most: float, within: str = "") -> str:
    """The first amount that changed by more than `most` times, or is no longer charged; "" if none did."""
    for name in AmountSettings.__struct_fields__:
        old, new = before.get(name, 0), now.get(name, 0)
        if old and new and (new > old * most or old > new * most):
            return f"{name} from {format_amount(old)} to {format_amount(new)}, more than {most:g} times{within}"
        # Another amount holds in place of most absent ones, so that they are not free.
        if old and not new and (name in now or name.startswith("per_")):
            return f"{name} from {format_amount(old)} to 0"
    for name in ("input", "output"):
        if bool(before.get(name)) != bool(now.get(name)):
            texts = [format_amount(prices.get(name, 0)) for prices in (before, now)]
            return f"{name} from {texts[0]} to {texts[1]}"
    return ""


def changed_prices(before: StoredList, now: StoredList) -> list[str]:
    """The models whose price in the list another one has replaced, and those whose price changed too much."""
    known = {one.name: one for one in (*before.gone, *before.models)}
    return [
        one.name
        for one in now.models
        if (old := known.get(one.name)) is not None
        and old.amounts is not None
        and (one.amounts != old.amounts or (one.problem == "price_changed" and old.problem != one.problem))
    ]


def price_sides(names: Iterable[str], before: StoredList, now: StoredList) -> tuple[dict[str, Any], dict[str, Any]]:
    """The prices of these models before and after, for the audit trail; those that are not used say why."""
    known = {one.name: one for one in (*before.gone, *before.models)}
    listed = {one.name: one for one in now.models}
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    for name in islice(names, MOST_TOLD):
        for side, one in zip(sides, (known[name], listed[name]), strict=True):
            side[name] = {key: format_amount(amount) for key, amount in (one.amounts or {}).items()}
            if one.problem:
                side[name]["not_used"] = one.detail
    return sides


def candidate_price(model: StoredModel) -> dict[str, Any] | None:
    """The fields of a `PriceSettings` for the list's price; None if it cannot be used.

    The first price has no date, as that of a configuration: a list that is read anew then has the same versions.
    """
    if model.problem or not model.amounts:
        return None
    return {**model.amounts, "currency": "USD", "effective_from": model.since if model.earlier else None}
