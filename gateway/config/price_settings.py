"""Prices in a configuration: a model's `price`, and the `cost` of a target, which has the same keys."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any

from msgspec import Meta, Struct

from gateway.config.public_prices import public_price
from gateway.config.toml_reader import FromTables, Key, SchemaOf, TomlReader
from gateway.config.values import Amount, Count, IsoDate, Multiplier, QualityPrices


class AmountSettings(Struct, frozen=True, kw_only=True):
    """The amounts that a tier can override; None where nothing is said."""

    input: Amount | None = None
    cached_input: Amount | None = None
    cache_write: Amount | None = None
    cache_write_long: Amount | None = None
    output: Amount | None = None
    reasoning: Amount | None = None
    audio_input: Amount | None = None
    cached_audio_input: Amount | None = None
    audio_output: Amount | None = None
    image_input: Amount | None = None
    image_output: Amount | None = None
    per_character: Amount | None = None
    per_second_in: Amount | None = None
    per_second_out: Amount | None = None
    per_request: Amount | None = None
    per_search_unit: Amount | None = None
    per_web_search: Amount | None = None
    minimum: Amount | None = None

    def amounts(self) -> dict[str, int]:
        """Every amount that is said."""
        pairs = ((name, getattr(self, name)) for name in AmountSettings.__struct_fields__)
        return {name: amount for name, amount in pairs if amount is not None}


#: For each amount, the one that holds in its place when it is not set.
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


class MaxPriceSettings(AmountSettings, frozen=True, kw_only=True):
    """A pattern's `max_price`: the highest amounts, and the highest of an image of any size and quality."""

    per_image: Amount | None = None

    def bounds(self) -> dict[str, int]:
        """Every bound that is said."""
        return self.amounts() if self.per_image is None else {**self.amounts(), "per_image": self.per_image}


class TierSettings(AmountSettings, frozen=True, kw_only=True):
    """One entry of `tiers`: amounts for the whole request once its prompt is longer."""

    above_input_tokens: Count


class PriceSettings(AmountSettings, frozen=True, kw_only=True):
    """A model's `price` (docs/configuration.md, "price")."""

    per_image: dict[str, QualityPrices] = {}
    tiers: tuple[TierSettings, ...] = ()
    service_tier_multiplier: dict[str, Multiplier] = {}
    currency: Annotated[str, Meta(pattern=r"^([A-Z]{3})?$(?!\n)")] = ""
    effective_from: IsoDate | None = None


def free_half(amounts: Mapping[str, int], endpoints: Collection[str]) -> str:
    """What is wrong with a list's price of a chat that charges only for the prompt, or only for the answer; or "".

    An upstream that says so has most likely left something out, and the other half would be free. Without `endpoints`
    the model may also be one of embeddings, whose answer costs nothing, or of speech, whose prompt has no price.
    """
    if (endpoints and "chat" not in endpoints) or bool(amounts.get("input")) == bool(amounts.get("output")):
        return ""
    free, other = ("output", "input") if amounts.get("input") else ("input", "output")
    if not endpoints and (free == "output" or free not in amounts):
        return ""
    return f"{free}: 0, while {other} has a price"


def price_tables(reader: TomlReader, value: object, key: Key) -> tuple[PriceSettings, ...] | None:
    """One price, several by date, or the name of a public one; None after noting problems."""
    tables: list[tuple[object, Key]]
    if isinstance(value, str):
        tables = [(table, key) for table in public_price(value, reader.tables)]
    elif isinstance(value, list):
        tables = [(table, (*key, index)) for index, table in enumerate(value)]
    else:
        tables = [(value, key)]
    prices = [reader.struct(PriceSettings, table, place) for table, place in tables]
    return tuple(price for price in prices if price is not None) if all(prices) else None


def _prices_schema(schema_of: SchemaOf) -> dict[str, Any]:
    """The name of a public price, a table, or a list of tables."""
    table = schema_of(PriceSettings)
    return {"anyOf": [{"type": "string"}, table, {"type": "array", "items": table}]}


Prices = Annotated[tuple[PriceSettings, ...], FromTables(price_tables, _prices_schema)]  # in the order of their dates
