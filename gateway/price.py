"""What usage costs: prices per model as integers, and the one multiplication that turns tokens into money.

Token prices are nano currency units (1e-9) per 1,000,000 tokens, the others nano per unit. `Price.cost(usage)` is exact
integer arithmetic, rounded up once. Sharp edge: a bucket without a price of its own takes its text price, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import Struct, structs

from gateway.usage import Usage

if TYPE_CHECKING:
    from gateway.settings import PriceSettings

PER_MILLION = 1_000_000

#: What a bucket without a price of its own is charged at.
DEFAULTS = (
    ("cached_input", "input"),
    ("cache_write", "input"),
    ("cache_write_long", "cache_write"),
    ("reasoning", "output"),
    ("audio_input", "input"),
    ("image_input", "input"),
    ("audio_output", "output"),
    ("image_output", "output"),
)


class Tier(Struct, frozen=True):
    """Prices that hold for the whole request once its prompt is longer than `above_input_tokens`."""

    above_input_tokens: int
    price: Price


class Price(Struct, frozen=True, kw_only=True):
    """The price of one model, in nano units."""

    version: str = ""
    input: int = 0  # per million tokens, as all token prices below
    cached_input: int = 0
    cache_write: int = 0
    cache_write_long: int = 0
    output: int = 0
    reasoning: int = 0
    audio_input: int = 0
    audio_output: int = 0
    image_input: int = 0
    image_output: int = 0
    per_character: int = 0  # per million characters
    per_second_in: int = 0
    per_second_out: int = 0
    per_request: int = 0
    per_search_unit: int = 0
    per_web_search: int = 0
    minimum: int = 0
    tiers: tuple[Tier, ...] = ()
    service_tier_multiplier: dict[str, tuple[int, int]] = {}  # tier → numerator, denominator

    @classmethod
    def of(cls, settings: PriceSettings | None) -> Price:
        """The price those settings describe, defaults filled in; none at all is free."""
        if settings is None:
            return cls()
        amounts = settings.amounts()
        tiers = sorted(settings.tiers, key=lambda tier: tier.above_input_tokens)
        multipliers = {name: factor.as_integer_ratio() for name, factor in settings.service_tier_multiplier.items()}
        return structs.replace(
            _complete(amounts),
            tiers=tuple(Tier(tier.above_input_tokens, _complete({**amounts, **tier.amounts()})) for tier in tiers),
            service_tier_multiplier=multipliers,
        )

    def cost(self, usage: Usage, *, service_tier: str | None = None) -> int:
        """Nano units that `usage` costs."""
        price = self.at(usage.tokens_in) if self.tiers else self
        million = (
            usage.in_text * price.input
            + usage.in_cached * price.cached_input
            + usage.in_cache_write_short * price.cache_write
            + usage.in_cache_write_long * price.cache_write_long
            + (usage.in_audio + usage.in_audio_cached) * price.audio_input
            + usage.in_image * price.image_input
            + usage.out_text * price.output
            + usage.out_reasoning * price.reasoning
            + usage.out_audio * price.audio_output
            + usage.out_image * price.image_output
            + usage.characters * price.per_character
        )
        units = (
            price.per_request * usage.requests
            + price.per_search_unit * usage.search_units
            + price.per_web_search * usage.web_searches
        )
        if usage.audio_seconds_in or usage.audio_seconds_out:
            # Seconds come as floats; microseconds keep the sum in integers.
            million += round(usage.audio_seconds_in * PER_MILLION) * price.per_second_in
            million += round(usage.audio_seconds_out * PER_MILLION) * price.per_second_out
        top, bottom = price.service_tier_multiplier.get(service_tier or "", (1, 1))
        total = -(-(million + units * PER_MILLION) * top // (PER_MILLION * bottom))
        return max(total, price.minimum)

    def at(self, input_tokens: int) -> Price:
        """The price that holds for a prompt of this length."""
        chosen = self
        for tier in self.tiers:
            if input_tokens > tier.above_input_tokens:
                chosen = tier.price
        return chosen

    @property
    def is_free(self) -> bool:
        """No field of this price can make a call cost anything."""
        amounts = (value for name, value in structs.asdict(self).items() if name not in {"tiers", "version"})
        return not self.tiers and not any(value for value in amounts if isinstance(value, int))


def _complete(amounts: Mapping[str, int]) -> Price:
    """A price of those amounts, with every default filled in."""
    whole = {name: int(amount) for name, amount in amounts.items()}
    for name, source in DEFAULTS:
        whole.setdefault(name, whole.get(source, 0))
    return structs.replace(Price(), **whole)
