"""Public prices by name: sound, dated, pinned by month, and refused by name when nobody knows them."""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.config.public_prices import public_price, table_names
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError

FOLDER = Path(__file__).parents[2] / "gateway" / "config" / "prices"
NEWEST = table_names()[-1]
PUBLIC = tomllib.loads((FOLDER / f"{NEWEST}.toml").read_text(encoding="utf-8"), parse_float=Decimal)


def settings_of(price: Any, **model: Any) -> Settings:
    fields = {"provider": "p", "price": price, **model}
    return parse({"providers": {"p": {"plugin": "openai"}}, "models": {"m": fields}}, file="gateway.toml")


def faults_of(price: Any, **model: Any) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings_of(price, **model)
    return [str(fault) for fault in caught.value.problems]


def price_of(name: str) -> Price:
    return Catalog.build(settings_of(name)).models["m"].price


def test_public_price_name_sets_the_public_price() -> None:
    price = price_of("openai/gpt-5-mini")
    assert price.cost(Usage(in_text=1_000_000)) == 250_000_000
    assert price.cost(Usage(in_cached=1_000_000)) == 25_000_000
    assert price.cost(Usage(out_text=1_000_000)) == 2_000_000_000
    assert price.cost(Usage(out_text=1_000_000), service_tier="flex") == 1_000_000_000


def test_public_price_name_can_be_pinned_to_a_month() -> None:
    assert price_of("openai/gpt-5-mini@2026-11") == price_of("openai/gpt-5-mini")


def test_long_prompts_are_charged_at_their_tier() -> None:
    price = price_of("anthropic/claude-sonnet-4-5")
    assert price.cost(Usage(in_text=200_000)) == 600_000_000
    assert price.cost(Usage(in_text=200_001)) == 1_200_006_000


def test_announced_price_applies_from_its_date() -> None:
    now, later = Catalog.build(settings_of("google/gemini-4-argon@2026-11")).models["m"].prices
    assert (now.input, later.input) == (2 * 10**9, 4 * 10**9)
    assert later.version.endswith("@2026-12-01")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("openai/gpt-5-mimi", "no public price is named 'openai/gpt-5-mimi'; nearest: \"openai/gpt-5-mini\""),
        ("openai/gpt-5-mini@2020-01", "no price table is named '2020-01'; nearest: "),
        ("../../etc/passwd", "no public price is named"),
        ("openai/gpt-5-mini@../2026-11", "no public price is named"),
        ("", "no public price is named ''"),
    ],
)
def test_unknown_price_name_is_an_error_that_suggests_the_nearest(name: str, reason: str) -> None:
    [fault] = faults_of(name)
    assert fault.startswith(f"gateway.toml: models.m.price: {reason}")


def test_every_public_price_can_be_served_and_charges() -> None:
    for name in PUBLIC:
        [*prices] = settings_of(name, endpoints=[]).models["m"].price or ()
        assert prices
        assert [price.currency for price in prices] == ["USD"] * len(prices)


def test_names_with_an_at_sign_are_found() -> None:
    assert any("@" in name for name in PUBLIC)
    for name in PUBLIC:
        if "@" in name:
            assert public_price(name) == public_price(f"{name}@{NEWEST}")


def test_amounts_have_at_most_nine_places() -> None:
    text = (FOLDER / f"{NEWEST}.toml").read_text(encoding="utf-8")
    assert not re.search(r"= \d+\.\d{10}", text)


def test_table_names_its_source_licence_and_date() -> None:
    for name in table_names():
        head = (FOLDER / f"{name}.toml").read_text(encoding="utf-8").split("\n\n")[0]
        assert re.search(r"as of \d{4}-\d{2}-\d{2}", head)
        assert "genai-prices" in head
        assert "The MIT License" in head
        assert "Copyright (c) Pydantic Services Inc." in head


def test_configurations_on_the_page_are_valid() -> None:
    page = (FOLDER.parents[2] / "docs" / "prices.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        parse(tomllib.loads('[providers.openai]\nplugin = "openai"\n' + block, parse_float=Decimal))


# Several prices ------------------------------------------------------------------------------------------------------

OLD = {"input": 1, "output": 1}
NEW = {"input": 2, "output": 2, "effective_from": "2026-11-01"}
LATER = {"input": 3, "output": 3, "effective_from": "2099-01-01"}


def test_prices_in_order_of_their_dates_are_accepted() -> None:
    model = Catalog.build(settings_of([OLD, NEW, LATER])).models["m"]
    assert [price.input for price in model.prices] == [10**9, 2 * 10**9, 3 * 10**9]
    assert model.price.input == 2 * 10**9


@pytest.mark.parametrize(
    ("price", "fault"),
    [
        ([], "price: missing: a model has a price, or says free = true"),
        ([LATER], "price: missing until 2099-01-01"),
        (LATER, "price: missing until 2099-01-01"),
        ([NEW, OLD], "price[1].effective_from: prices stand in rising order of their dates"),
        ([NEW, NEW], "price[1].effective_from: prices stand in rising order of their dates"),
        ([OLD, {**LATER, "input": -1}], "price[1].input: -1 is negative"),
        ([OLD, {**LATER, "inptu": 1}], 'price[1].inptu: unknown key; nearest: "input"'),
        ([OLD, "openai/gpt-5"], "price[1]: expected a table, got a string"),
        ([{**OLD, "output": 0, "input": 0}, LATER], "price[0]: every amount is zero"),
        (5, "price: expected a table, got an integer"),
    ],
)
def test_errors_in_a_list_of_prices_are_named(price: Any, fault: str) -> None:
    [found] = faults_of(price)
    assert found.startswith(f"gateway.toml: models.m.{fault}")


def test_prices_in_two_currencies_are_an_error() -> None:
    models = {
        "a": {"provider": "p", "price": "openai/gpt-5"},
        "b": {"provider": "p", "price": {**OLD, "currency": "EUR"}},
    }
    with pytest.raises(SettingsError, match=r"models\.b\.price\.currency: EUR, but a is priced in USD"):
        parse({"providers": {"p": {"plugin": "openai"}}, "models": models})
