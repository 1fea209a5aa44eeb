"""One rule says in which currency an installation computes: for the catalogue, the console, patterns and offers."""

from __future__ import annotations

import tomllib
from decimal import Decimal

import pytest

from gateway.amounts import NANO
from gateway.catalog import Catalog
from gateway.config.currency import currency_of
from gateway.config.loader import parse
from gateway.config.pattern_models import Candidate, found_models, with_models
from gateway.config.price_settings import PriceSettings
from gateway.config.settings import Settings
from gateway.console import rendering

PROVIDER = '[providers.p]\nplugin = "openai"\ndiscover = true\n'
UNNAMED = '[models.m]\nprovider = "p"\nprice = { input = 1, output = 1 }\n'
EUR = '{ input = 1, output = 1, currency = "EUR" }'


def settings_of(text: str) -> Settings:
    return parse(tomllib.loads(PROVIDER + text, parse_float=Decimal), file="gateway.toml")


@pytest.mark.parametrize(
    ("text", "currency"),
    [
        (UNNAMED, ""),
        ('[models.m]\nprovider = "p"\nfree = true\n', ""),
        (f'{UNNAMED}[models.n]\nprovider = "p"\nprice = {EUR}\n', "EUR"),
        (f'[models."p/*"]\nprovider = "p"\nprice = {EUR}\n', "EUR"),  # no model of the list is known yet
        (f"{UNNAMED}cost = {EUR}\n", "EUR"),
        ('[models.m]\nprovider = "p"\nprice = "openai/gpt-5-mini"\n', "USD"),
    ],
)
def test_the_currency_is_the_one_that_a_price_names(text: str, currency: str) -> None:
    settings = settings_of(text)
    assert currency_of(settings) == currency
    assert Catalog.build(settings).currency == (currency or None)
    assert vars(rendering)["currency_of"] is currency_of
    if "p/*" not in text:
        settings = settings_of(f'{text}[models."p/*"]\nprovider = "p"\nprice = "upstream"\n')
        price = PriceSettings(input=NANO, output=NANO, currency="USD")
        [found] = found_models(settings, "p", [Candidate(name="x", price=price)])
        assert found.state == ("currency" if currency == "EUR" else "served")


def test_the_models_of_a_list_name_the_currency_if_nothing_else_does() -> None:
    settings = settings_of(f'{UNNAMED}[models."p/*"]\nprovider = "p"\nprice = "upstream"\n')
    price = PriceSettings(input=NANO, output=NANO, currency="USD")
    [found] = found_models(settings, "p", [Candidate(name="x", price=price)])
    assert found.model is not None
    whole = with_models(settings, {found.name: found.model})
    assert (currency_of(whole), Catalog.build(whole).currency) == ("USD", "USD")
