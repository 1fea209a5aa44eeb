"""The cost of usage: prices per model as integers, and the computation of an amount from tokens.

Token prices are nano currency units (1e-9) per 1,000,000 tokens, other prices nano-units per unit. `Price.cost(usage)`
is exact integer arithmetic, rounded up once. A price object is never changed: a new price is a new object with a new
version. Sharp edge: a kind of token without its own price has the text price, and an image of an unknown size has the
highest image price. So a missing price does not make usage free.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct, structs

from gateway.amounts import NANO
from gateway.billing.usage import Usage
from gateway.config.price_settings import DEFAULTS, PriceSettings

PER_MILLION = 1_000_000
ANY = "*"  # in per_image: every size, or quality, without its own entry


class Tier(Struct, frozen=True):
    """Prices for all tokens of a request whose prompt is longer than `above_input_tokens`."""

    above_input_tokens: int
    price: Price


class Price(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The price of one model, in nano units."""

    version: str = ""
    effective_from: int = 0  # Unix seconds
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
    per_image: dict[str, dict[str, int]] = {}  # size → quality → amount
    tiers: tuple[Tier, ...] = ()
    service_tier_multiplier: dict[str, tuple[int, int]] = {}  # tier → numerator, denominator
    cached_audio_input: int | None = None  # None: as audio_input, so that versions stay those of earlier releases
    held: Price | None = None  # the same with each kind of token at the highest price that its tokens may have
    factor: int = NANO  # multiplies every cost; the other amounts are without it, except `minimum`

    @classmethod
    def of(cls, settings: PriceSettings | None) -> Price:
        """The price of the settings with all defaults; without settings everything is free."""
        if settings is None:
            return cls()
        amounts = settings.amounts()
        tiers = sorted(settings.tiers, key=lambda tier: tier.above_input_tokens)
        multipliers = {name: factor.as_integer_ratio() for name, factor in settings.service_tier_multiplier.items()}
        price = structs.replace(
            _complete(amounts),
            per_image=settings.per_image,
            tiers=tuple(Tier(tier.above_input_tokens, _complete({**amounts, **tier.amounts()})) for tier in tiers),
            service_tier_multiplier=multipliers,
        )
        date = settings.effective_from
        return structs.replace(
            price,
            version=_digest(price) + (f"@{date}" if date else ""),
            effective_from=int(datetime.fromisoformat(date).replace(tzinfo=UTC).timestamp()) if date else 0,
            held=_highest(price),
        )

    def times(self, factor: int) -> Price:
        """This list price with a factor in 1e-9; it keeps the version, which is that of the list price."""
        if factor == NANO:
            return self
        return structs.replace(
            self,
            factor=factor,
            minimum=-(-self.minimum * factor // NANO),
            tiers=tuple(Tier(tier.above_input_tokens, tier.price.times(factor)) for tier in self.tiers),
            held=self.held.times(factor) if self.held is not None else None,
        )

    @property
    def output_is_free(self) -> bool:
        """Whether no token of output has a price."""
        held = self.held or self
        return not (self.factor and (held.output or held.audio_output or held.image_output or self.tiers))

    def cost(self, usage: Usage, *, service_tier: str | None = None) -> int:
        """The cost of `usage` in nano-units."""
        price = self.at(usage.tokens_in) if self.tiers else self
        million = usage.in_text * price.input + usage.out_text * price.output
        units = price.per_request * usage.requests
        if not usage.is_plain:  # most calls are plain: 0.4 µs, others 0.6 µs
            million += price.other_than_text(usage)
            units += price.per_search_unit * usage.search_units + price.per_web_search * usage.web_searches
            if usage.images is not None:
                units += usage.images.count * self.image(usage.images.size, usage.images.quality)
        total = million + units * PER_MILLION
        bottom = PER_MILLION
        if self.service_tier_multiplier:
            top, divisor = self.service_tier_multiplier.get(service_tier or "", (1, 1))
            total, bottom = total * top, bottom * divisor
        if self.factor != NANO:
            total, bottom = total * self.factor, bottom * NANO
        total = -(-total // bottom)
        return total if total > price.minimum else price.minimum

    def other_than_text(self, usage: Usage) -> int:
        """The cost of tokens that are not plain text, of characters and of audio, in nano-units times a million."""
        million = (
            usage.in_cached * self.cached_input
            + usage.in_cache_write_short * self.cache_write
            + usage.in_cache_write_long * self.cache_write_long
            + usage.in_audio * self.audio_input
            + usage.in_audio_cached * (self.audio_input if self.cached_audio_input is None else self.cached_audio_input)
            + usage.in_image * self.image_input
            + usage.out_reasoning * self.reasoning
            + usage.out_audio * self.audio_output
            + usage.out_image * self.image_output
            + usage.characters * self.per_character
        )
        if usage.audio_seconds_in or usage.audio_seconds_out:
            # Seconds come as floats; whole microseconds keep the sum in integers.
            million += round(usage.audio_seconds_in * PER_MILLION) * self.per_second_in
            million += round(usage.audio_seconds_out * PER_MILLION) * self.per_second_out
        return million

    def worst(self, usage: Usage, *, service_tier: str | None = None) -> int:
        """The highest cost of `usage` in nano-units for any kind that its tokens may have; this amount is held."""
        held = self.held or self
        top, bottom = self.service_tier_multiplier.get(service_tier or "", (1, 1))
        # An upstream does not always grant a cheaper tier that was requested.
        return held.cost(usage, service_tier=service_tier if top > bottom else None)

    def billed_tier(self, asked: str | None, used: str | None) -> str | None:
        """The service tier to charge: the used one, unless it costs more than the requested one."""
        if not self.service_tier_multiplier or used is None or used == asked:
            return asked
        used_top, used_bottom = self.service_tier_multiplier.get(used, (1, 1))
        top, bottom = self.service_tier_multiplier.get(asked or "", (1, 1))
        if used_top <= used_bottom or used_top * bottom <= top * used_bottom:
            return used
        return asked if top >= bottom else None

    def image(self, size: str, quality: str) -> int:
        """The price of one image in nano-units."""
        for by_quality in (self.per_image.get(size), self.per_image.get(ANY)):
            for name in (quality, ANY):
                if by_quality is not None and name in by_quality:
                    return by_quality[name]
        return max((amount for table in self.per_image.values() for amount in table.values()), default=0)

    def most_expensive_image(self, size: str, quality: str) -> tuple[str, str]:
        """The size and quality with the highest price; the model chooses a value that is empty."""
        sizes = [size] if size else [*self.per_image, ANY]
        names = {name for table in self.per_image.values() for name in table}
        qualities = [quality] if quality else sorted(names | {ANY})
        return max(((one, name) for one in sizes for name in qualities), key=lambda pair: self.image(*pair))

    def at(self, input_tokens: int) -> Price:
        """The price for a prompt of `input_tokens` tokens."""
        chosen = self
        for tier in self.tiers:
            if input_tokens > tier.above_input_tokens:
                chosen = tier.price
        return chosen


def price_on(prices: tuple[Price, ...], now: float) -> Price:
    """The price in effect at `now`, in Unix seconds; before the first date, the first price."""
    chosen = prices[0]
    for price in prices:
        if price.effective_from <= now:
            chosen = price
    return chosen


def _complete(amounts: Mapping[str, int]) -> Price:
    """A price of the amounts, with all defaults."""
    whole = {name: int(amount) for name, amount in amounts.items()}
    for name, source in DEFAULTS:
        whole.setdefault(name, whole.get(source, 0))
    return structs.replace(Price(), **whole)


def _highest(price: Price) -> Price:
    """The price to hold. Before a call it is unknown which prompt text is cached and which output is reasoning.

    The prompt may also be shorter than its upper estimate. So a tier has no price below those of the tiers before it.
    """
    highest = _highest_kind(price)
    tiers, below = [], highest
    for tier in price.tiers:
        below = _at_least(_highest_kind(tier.price), below)
        tiers.append(Tier(tier.above_input_tokens, below))
    return structs.replace(highest, tiers=tuple(tiers))


def _at_least(price: Price, floor: Price) -> Price:
    """`price` with each amount raised to that of `floor` if it is lower."""
    names = (field.name for field in structs.fields(Price) if field.type is int and field.name != "effective_from")
    return structs.replace(price, **{name: max(getattr(price, name), getattr(floor, name)) for name in names})


def _highest_kind(price: Price) -> Price:
    """The prices of one tier, with each price raised to the highest that its tokens may have."""
    text = max(price.input, price.cached_input, price.cache_write, price.cache_write_long)
    output = max(price.output, price.reasoning)
    # A model that makes images in a chat decides itself how many of its tokens are one.
    tokens = max(output, price.image_output)
    return structs.replace(
        price,
        input=text,
        image_input=max(price.image_input, text),
        audio_input=max(price.audio_input, price.cached_audio_input or 0, text),
        output=tokens,
        audio_output=max(price.audio_output, output),
        image_output=tokens,
    )


def _digest(price: Price) -> str:
    """A digest of the amounts, the same in every worker and release."""
    return hashlib.sha256(msgspec.json.encode(price, order="sorted")).hexdigest()[:12]
