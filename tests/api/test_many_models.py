"""What a request costs does not grow with the number of models."""

from __future__ import annotations

import tomllib
from decimal import Decimal

from gateway.catalog import Catalog
from gateway.config.loader import parse


def catalog(text: str) -> Catalog:
    head = '[providers.p]\nplugin = "openai"\n'
    return Catalog.build(parse(tomllib.loads(head + text, parse_float=Decimal)))


def test_a_record_is_looked_up_by_its_id_or_alias() -> None:
    found = catalog('[models.a]\nprovider = "p"\nfree = true\naliases = ["b"]\n')
    assert {name: (record.id, model.name) for name, (record, model) in found.by_id.items()} == {
        "a": ("a", "a"),
        "b": ("b", "a"),
    }


def test_the_currency_of_the_prices_is_known_beforehand() -> None:
    free = '[models.f]\nprovider = "p"\nfree = true\n'
    priced = '[models.a]\nprovider = "p"\nprice = { input = 1, output = 1, currency = "EUR" }\n'
    assert catalog(free).currency is None
    assert catalog(free + priced).currency == "EUR"
    assert catalog(priced.replace(', currency = "EUR"', "")).currency is None
