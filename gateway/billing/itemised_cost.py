"""The cost of a call, item by item: each bucket of its usage with its price. The items add up to the cost exactly."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import ceil

from msgspec import Struct

from gateway.billing.price import PER_MILLION, Price
from gateway.billing.usage import Usage


class CostItem(Struct, frozen=True):
    """`count` units of a bucket at `price` nano-units per `per` units; `cost` is exact, in nano-units."""

    bucket: str  # a name of `Usage`
    count: Fraction
    price: int
    per: int

    @property
    def cost(self) -> Fraction:
        """Before the factor of the service tier, and not rounded."""
        return self.count * self.price / self.per


class ItemisedCost(Struct, frozen=True):
    """The items, the factors on their sum, and the cost: their product rounded up, at least the minimum."""

    items: list[CostItem]
    tier_factor: Fraction  # of the service tier
    price_factor: Fraction  # of the account
    minimum: int
    cost: int


def itemised_cost(
    price: Price, usage: Usage, *, service_tier: str | None = None, price_factor: Fraction = Fraction(1)
) -> ItemisedCost:
    """The cost in nano-units with each step; without a factor it is `Price.cost`.

    A call that never was a request costs nothing.
    """
    tier = Fraction(*price.service_tier_multiplier.get(service_tier or "", (1, 1)))
    if usage == Usage(requests=0):
        return ItemisedCost([], tier, price_factor, 0, 0)
    current = price.at(usage.tokens_in)
    items = [item for item in _items(current, usage, price) if item.count]
    total = sum((item.cost for item in items), Fraction()) * tier * price_factor
    minimum = ceil(current.minimum * price_factor)
    return ItemisedCost(items, tier, price_factor, minimum, max(ceil(total), minimum))


def _items(price: Price, usage: Usage, whole: Price) -> Iterator[CostItem]:
    cached_audio = price.audio_input if price.cached_audio_input is None else price.cached_audio_input
    for bucket, count, amount in (
        ("in_text", usage.in_text, price.input),
        ("in_cached", usage.in_cached, price.cached_input),
        ("in_cache_write_short", usage.in_cache_write_short, price.cache_write),
        ("in_cache_write_long", usage.in_cache_write_long, price.cache_write_long),
        ("in_audio", usage.in_audio, price.audio_input),
        ("in_audio_cached", usage.in_audio_cached, cached_audio),
        ("in_image", usage.in_image, price.image_input),
        ("out_text", usage.out_text, price.output),
        ("out_reasoning", usage.out_reasoning, price.reasoning),
        ("out_audio", usage.out_audio, price.audio_output),
        ("out_image", usage.out_image, price.image_output),
        ("characters", usage.characters, price.per_character),
    ):
        yield CostItem(bucket, Fraction(count), amount, PER_MILLION)
    for bucket, seconds, amount in (
        ("audio_seconds_in", usage.audio_seconds_in, price.per_second_in),
        ("audio_seconds_out", usage.audio_seconds_out, price.per_second_out),
    ):
        yield CostItem(bucket, Fraction(round(seconds * PER_MILLION), PER_MILLION), amount, 1)
    if usage.images is not None:
        yield CostItem("images", Fraction(usage.images.count), whole.image(usage.images.size, usage.images.quality), 1)
    if price.per_request:
        yield CostItem("requests", Fraction(usage.requests), price.per_request, 1)
    yield CostItem("search_units", Fraction(usage.search_units), price.per_search_unit, 1)
    yield CostItem("web_searches", Fraction(usage.web_searches), price.per_web_search, 1)
