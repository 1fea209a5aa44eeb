"""`max_price` of a pattern of models: the highest amount of everything that a price charges for.

An amount without a bound of its own has that of the amount which holds in its place when it is not set: `reasoning`
that of `output`. An amount that no bound covers is too much, so that a price cannot be high in a unit that the
operator did not think of. Tiers count, and so does the highest `service_tier_multiplier`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from decimal import Decimal

from gateway.amounts import format_amount
from gateway.config.price_settings import DEFAULTS, MaxPriceSettings, PriceSettings

#: As `Price` charges: an amount that is not set, and what holds in its place.
_IN_PLACE = (*DEFAULTS, ("cached_audio_input", "audio_input"))
_SOURCES = dict(_IN_PLACE)


def above_maximum(prices: Iterable[PriceSettings], maximum: MaxPriceSettings) -> str:
    """The first amount that is above its bound or has none, for operators; "" if there is none."""
    bounds = maximum.bounds()
    problems = (_above(name, amount, bounds) for price in prices for name, amount in _charged(price))
    return next(filter(None, problems), "")


def _above(name: str, amount: int, bounds: Mapping[str, int]) -> str:
    bound: str | None = name
    while bound is not None and bound not in bounds:
        bound = _SOURCES.get(bound)
    if bound is None:
        return f"{name} = {format_amount(amount)}, and max_price has no bound for it" if amount else ""
    if amount <= bounds[bound]:
        return ""
    of = "" if bound == name else f" for {bound}"
    return f"{name} = {format_amount(amount)}, above max_price of {format_amount(bounds[bound])}{of}"


def _charged(price: PriceSettings) -> Iterable[tuple[str, int]]:
    """The highest amounts that calls pay, by name."""
    factor = max((Decimal(1), *price.service_tier_multiplier.values()))
    base = price.amounts()
    for amounts in (base, *({**base, **tier.amounts()} for tier in price.tiers)):
        whole = dict(amounts)
        for name, source in _IN_PLACE:
            whole.setdefault(name, whole.get(source, 0))
        for name, amount in whole.items():
            yield name, amount if name == "minimum" else math.ceil(amount * factor)
    for by_quality in price.per_image.values():
        yield "per_image", math.ceil(max(by_quality.values(), default=0) * factor)
