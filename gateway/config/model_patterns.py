"""Patterns of models: `[models."openrouter/*"]` says how each model of a provider is served that the pattern fits.

A pattern has one `*`. Its `model` is the same for the upstream's names; what `*` stands for is the same in both. A name
that a model of the configuration has never comes from a pattern.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.config.price_settings import PriceSettings, price_tables
from gateway.config.public_prices import public_price
from gateway.config.toml_reader import FromTables, Key, SchemaOf, TomlReader

STAR: Final = "*"
PUBLIC, UPSTREAM = "public", "upstream"  # sources of prices: the table of public prices, the provider's own list
MOST_SOURCES: Final = 8


class PriceRule(Struct, frozen=True):
    """Where the models of a pattern have their prices from: a price for all of them, or sources in their order.

    A source is `public`, `upstream`, or the name of a public price with a `*`.
    """

    tables: tuple[PriceSettings, ...] = ()
    sources: tuple[str, ...] = ()


#: That of a provider with `discover` for which there is no pattern.
USUAL_RULE: Final = PriceRule(sources=(PUBLIC, UPSTREAM))


def _rule(reader: TomlReader, value: object, key: Key) -> PriceRule | None:
    """A source, an array of them, or a price in one of its forms."""
    names = value if isinstance(value, list) else [value]
    if names and all(isinstance(name, str) for name in names) and any(map(_is_source, names)):
        return PriceRule(sources=_sources([str(name) for name in names]))
    if isinstance(value, str):
        public_price(value, reader.tables)  # ValueError for an unknown name
    tables = price_tables(reader, value, key)
    return PriceRule(tables=tables) if tables is not None else None


def _is_source(name: str) -> bool:
    return name in (PUBLIC, UPSTREAM) or STAR in name


def _sources(names: list[str]) -> tuple[str, ...]:
    if len(names) > MOST_SOURCES:
        raise ValueError(f"expected at most {MOST_SOURCES} sources of prices")
    for name in names:
        if not _is_source(name) or name.count(STAR) > 1:
            raise ValueError(f'{name!r} is no source of prices: "public", "upstream", or a public name with one *')
    return tuple(names)


def _rule_schema(schema_of: SchemaOf) -> dict[str, Any]:
    table = schema_of(PriceSettings)
    items = {"anyOf": [{"type": "string"}, table]}
    return {"anyOf": [{"type": "string"}, table, {"type": "array", "items": items}]}


Rule = Annotated[PriceRule, FromTables(_rule, _rule_schema)]
Glob = Annotated[str, Meta(min_length=1, max_length=200, pattern=r"^[^\s]+$(?!\n)")]  # `*` stands for any characters


def matched(pattern: str, name: str) -> str | None:
    """What the `*` of a pattern stands for in a name; None if it does not fit. It stands for at least a character."""
    before, _, after = pattern.partition(STAR)
    if len(name) <= len(before) + len(after) or not name.startswith(before) or not name.endswith(after):
        return None
    return name[len(before) : len(name) - len(after)]


def filled(pattern: str, text: str) -> str:
    """The pattern with a text in place of its `*`."""
    return pattern.replace(STAR, text, 1)
