"""Public prices by name: sound, dated, pinned by month, and refused by name when nobody knows them."""

from __future__ import annotations

import re
import tomllib
from datetime import date
from decimal import Decimal
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
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


@pytest.mark.holds("prices.md#public-prices-by-name-1")
def test_public_price_name_sets_the_public_price() -> None:
    price = price_of("openai/gpt-5-mini")
    assert price.cost(Usage(in_text=1_000_000)) == 250_000_000
    assert price.cost(Usage(in_cached=1_000_000)) == 25_000_000
    assert price.cost(Usage(out_text=1_000_000)) == 2_000_000_000
    assert price.cost(Usage(out_text=1_000_000), service_tier="flex") == 1_000_000_000


@pytest.mark.holds("prices.md#public-prices-by-name-2")
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


@pytest.mark.holds("prices.md#public-prices-by-name-2")
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


@pytest.mark.holds("prices.md#public-prices-by-name-1")
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


@pytest.mark.holds("prices.md#public-prices-by-name-3")
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
    assert len(blocks) == 4
    for block in blocks:
        parse(tomllib.loads('[providers.openai]\nplugin = "openai"\n' + block, parse_float=Decimal))


# What the generator of the tables leaves out -------------------------------------------------------------------------

TODAY = date(2026, 11, 23)
TABLES = [(name, table) for name in PUBLIC for table in public_price(name)]


def generator() -> ModuleType:
    spec = spec_from_file_location("generate", FOLDER.parents[2] / "conf" / "prices" / "generate.py")
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def source(name: str, variants: Any = (), **prices: Any) -> Any:
    """A vendor of the source with one model."""
    vendor, _, model = name.partition("/")
    parsed = SimpleNamespace(**{unit: Decimal(str(price)) for unit, price in prices.items()})
    return SimpleNamespace(id=vendor, models=[SimpleNamespace(id=model, prices=parsed, price_variants=list(variants))])


def variant(tier: str, start: date | None = None, **prices: Any) -> Any:
    constraint = None if start is None else SimpleNamespace(start_date=start)
    parsed = SimpleNamespace(**{unit: Decimal(str(price)) for unit, price in prices.items()})
    return SimpleNamespace(when={"service_tier": tier}, prices=parsed, constraint=constraint)


TEXT = {"input_mtok": 2, "output_mtok": 10}


@pytest.mark.holds("prices.md#public-prices-by-name-3")
@pytest.mark.parametrize(
    ("name", "prices", "variants"),
    [
        ("openai/gpt-4o-audio-preview", TEXT, []),
        ("openai/gpt-9-realtime", TEXT, []),
        ("openai/gpt-5-image-mini", TEXT, []),
        ("openai/gpt-9-image", {**TEXT, "input_image_mtok": 8}, []),
        ("google/gemini-9-nano-banana", TEXT, []),
        ("google/gemini-omni", {**TEXT, "output_video_mtok": 17}, []),
        ("openai/gpt-9", TEXT, [variant("priority", input_mtok=1, output_mtok=9)]),
        ("openai/gpt-9", TEXT, [variant("fast", input_mtok=1, output_mtok=9)]),
        ("deepseek/deepseek-v3.2", TEXT, []),
    ],
)
def test_generator_refuses_a_price_that_would_undercharge(
    name: str, prices: Any, variants: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert list(generator().entries(source(name, variants, **prices), TODAY)) == []
    assert f"{name}: " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "prices", "line"),
    [
        ("openai/gpt-9", TEXT, "{ input = 2, output = 10 }"),
        ("openai/gpt-audio", {**TEXT, "output_audio_mtok": 64}, "{ input = 2, output = 10, audio_output = 64 }"),
        ("x/whisper-9", {"audio_hours": 36}, "{ per_second_in = 0.01 }"),
        ("google/gemini-9-image", {**TEXT, "output_image_mtok": 30}, "{ input = 2, output = 10, image_output = 30 }"),
    ],
)
def test_generator_takes_a_price_that_says_what_its_kind_costs(name: str, prices: Any, line: str) -> None:
    assert list(generator().entries(source(name, **prices), TODAY)) == [f'"{name}" = {line}']


@pytest.mark.parametrize(("model", "key"), [("gpt-image-9", "image_output"), ("gemini-9-tts", "audio_output")])
def test_generator_names_the_kind_of_output_where_there_is_no_text(model: str, key: str) -> None:
    [line] = generator().entries(source(f"x/{model}", **TEXT, input_image_mtok=8), TODAY)
    assert f"output = 10, image_input = 8, {key} = 10" in line


def test_generator_takes_the_factor_of_the_day() -> None:
    later = variant("priority", date(2026, 11, 1), input_mtok=4, output_mtok=20)
    earlier = variant("priority", date(2026, 10, 1), input_mtok=3, output_mtok=15)
    tomorrow = variant("priority", date(2026, 11, 24), input_mtok=6, output_mtok=30)
    [line] = generator().entries(source("openai/gpt-9", [tomorrow, later, earlier], **TEXT), TODAY)
    assert "service_tier_multiplier = { priority = 2 }" in line


def test_generator_knows_the_price_of_cached_audio() -> None:
    [line] = generator().entries(source("x/m", **TEXT, input_audio_mtok=3, cache_audio_read_mtok="0.3"), TODAY)
    assert "audio_input = 3, cached_audio_input = 0.3" in line


@pytest.mark.holds("prices.md#public-prices-by-name-3")
def test_no_faster_tier_is_cheaper_in_the_table() -> None:
    factors = {
        (name, tier): factor
        for name, table in TABLES
        for tier, factor in table.get("service_tier_multiplier", {}).items()
        if tier != "flex"
    }
    assert len(factors) > 30
    assert {key: factor for key, factor in factors.items() if factor < 1} == {}


@pytest.mark.holds("prices.md#public-prices-by-name-3")
def test_audio_and_image_models_of_the_table_have_a_price_of_their_kind() -> None:
    sounds = {"audio_input", "audio_output", "per_second_in", "per_character"}
    for name, table in TABLES:
        words = set(re.split(r"[^a-z]+", name.rpartition("/")[2].lower()))
        if words & {"image", "banana"}:
            assert "image_output" in table, name
        if words & {"audio", "realtime", "tts", "whisper", "transcribe", "sonic", "voice", "live"}:
            assert sounds & table.keys(), name


@pytest.mark.holds("prices.md#public-prices-by-name-3")
@pytest.mark.parametrize("name", ["openai/gpt-4o-audio-preview", "deepseek/deepseek-chat", "deepseek/deepseek-v3.2"])
def test_rows_that_no_source_supports_are_gone(name: str) -> None:
    assert name not in PUBLIC


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


@pytest.mark.holds("prices.md#prices-that-change-2")
def test_prices_in_two_currencies_are_an_error() -> None:
    models = {
        "a": {"provider": "p", "price": "openai/gpt-5"},
        "b": {"provider": "p", "price": {**OLD, "currency": "EUR"}},
    }
    with pytest.raises(SettingsError, match=r"models\.b\.price\.currency: EUR, but a is priced in USD"):
        parse({"providers": {"p": {"plugin": "openai"}}, "models": models})
