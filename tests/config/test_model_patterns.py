"""Patterns of models: which model they fit, where its price is from, and what is refused."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pytest

from gateway.admin.configuration_changes import changes
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.pattern_models import Candidate, FoundModel, found_models
from gateway.config.price_settings import AmountSettings, PriceSettings, TierSettings
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.setup.effective_configuration import effective_models

PROVIDERS = """
[providers.openai]
plugin = "openai"

[providers.router]
plugin = "openai"
discover = true

[providers.other]
plugin = "openai"
discover = true
"""


def settings_of(text: str, head: str = PROVIDERS) -> Settings:
    return parse(tomllib.loads(head + text, parse_float=Decimal), file="gateway.toml")


def faults(text: str) -> list[str]:
    with pytest.raises(SettingsError) as caught:
        settings_of(text)
    return [str(problem).removeprefix("gateway.toml: ") for problem in caught.value.problems]


def found(text: str, *candidates: Candidate, provider: str = "router") -> Sequence[FoundModel]:
    return list(found_models(settings_of(text), provider, candidates))


def listed(name: str, amount: int = 1, **more: Any) -> Candidate:
    price = PriceSettings(input=amount * NANO, output=amount * NANO, currency="USD", effective_from="2026-11-30")
    return Candidate(name=name, price=price, **more)


def only(text: str, candidate: Candidate) -> FoundModel:
    [one] = found(text, candidate)
    return one


# Without discovery ---------------------------------------------------------------------------------------------------


def test_a_pattern_without_a_list_serves_the_models_with_a_public_price() -> None:
    settings = settings_of('[models."openai/*"]\nprovider = "openai"\nprice = "public"\n')
    model = settings.models["openai/gpt-5-mini"]
    assert (model.provider, model.model) == ("openai", "gpt-5-mini")
    assert model.price is not None
    assert model.price[0].input == 250_000_000
    assert all(name.startswith("openai/") for name in settings.models)
    assert settings.from_patterns == set(settings.models)
    assert settings.configured.models == {}


def test_a_pattern_of_a_router_serves_public_prices_by_the_upstreams_names() -> None:
    text = '[models."any/*"]\nprovider = "openai"\nmodel = "*"\nprice = "public"\n'
    settings = settings_of(text)
    assert settings.models["any/anthropic/claude-opus-4-1"].model == "anthropic/claude-opus-4-1"


def test_a_model_of_the_file_wins_over_a_pattern() -> None:
    own = '[models."openai/gpt-5-mini"]\nprovider = "openai"\nprice = { input = 9, output = 9 }\n'
    settings = settings_of(f'{own}[models."openai/*"]\nprovider = "openai"\nprice = "public"\n')
    price = settings.models["openai/gpt-5-mini"].price
    assert price is not None
    assert price[0].input == 9 * NANO
    assert "openai/gpt-5-mini" not in settings.from_patterns


# Names ---------------------------------------------------------------------------------------------------------------

FREE = 'provider = "router"\nfree = true\n'


@pytest.mark.parametrize(
    ("pattern", "upstream", "name"),
    [
        ('[models."router/*"]', "a/b", "router/a/b"),
        ('[models."router/a/*"]', "a/b", "router/a/b"),
        ('[models."*"]', "a/b", "a/b"),
        ('[models."gpt-*"]', "gpt-5", "gpt-5"),
        ('[models."router/*:cheap"]', "x:cheap", "router/x:cheap"),
    ],
)
def test_the_public_name_follows_from_the_pattern(pattern: str, upstream: str, name: str) -> None:
    assert only(f"{pattern}\n{FREE}", Candidate(name=upstream)).name == name


def test_the_upstreams_names_may_have_a_pattern_of_their_own() -> None:
    one = only(f'[models."house-*"]\nmodel = "Qwen/*-chat"\n{FREE}', Candidate(name="Qwen/Qwen3-chat"))
    assert (one.name, one.state) == ("house-Qwen3", "served")
    assert one.model is not None
    assert one.model.model == "Qwen/Qwen3-chat"


def test_the_most_exact_pattern_counts() -> None:
    text = f"""
[models."router/*"]
{FREE}
[models."router/a/*"]
provider = "router"
price = {{ input = 3, output = 3 }}
"""
    one, two = found(text, Candidate(name="a/x"), Candidate(name="b/x"))
    assert (one.pattern, two.pattern) == ("router/a/*", "router/*")


def test_a_name_is_left_to_the_pattern_of_another_provider_that_fits_better() -> None:
    text = f'[models."*"]\n{FREE}[models."gpt-*"]\nprovider = "other"\nfree = true\n'
    assert only(text, Candidate(name="gpt-5")).state == "other_pattern"


def test_a_model_without_a_pattern_is_not_served() -> None:
    assert only(f'[models."router/a/*"]\n{FREE}', Candidate(name="b/x")).state == "no_pattern"


def test_filters_and_the_highest_number_apply() -> None:
    head = PROVIDERS.replace(
        "[providers.other]",
        'discover_include = ["a/*"]\ndiscover_exclude = ["*:free"]\ndiscover_most = 1\n\n[providers.other]',
    )
    settings = settings_of(f'[models."router/*"]\n{FREE}', head)
    names = ["b/x", "a/x:free", "a/x", "a/y"]
    states = [one.state for one in found_models(settings, "router", [Candidate(name=name) for name in names])]
    assert states == ["excluded", "excluded", "served", "too_many"]


def test_a_name_that_a_model_or_an_alias_has_is_configured() -> None:
    own = '[models.m]\nprovider = "openai"\nfree = true\naliases = ["router/x"]\n'
    assert only(f'{own}[models."router/*"]\n{FREE}', Candidate(name="x")).state == "configured"


# Prices --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "candidate", "state"),
    [
        ("", Candidate(name="x"), "no_price"),
        ("", listed("x"), "served"),
        ("", Candidate(name="openai/gpt-5-mini"), "served"),
        ("", listed("x", problem="price_changed"), "price_changed"),
        ("", Candidate(name="x", problem="free"), "free"),
        ('price = "public"', listed("x"), "no_price"),
        ('price = "public"', Candidate(name="openai/gpt-5-mini", problem="price"), "served"),
        ('price = "upstream"', listed("openai/gpt-5-mini", problem="price"), "price"),
        ('price = "upstream"', Candidate(name="openai/gpt-5-mini"), "no_price"),
        ('price = ["openai/*", "upstream"]', Candidate(name="gpt-5-mini"), "served"),
        ('price = "openai/gpt-5-mini"', Candidate(name="x"), "served"),
        ("price = { input = 1, output = 2 }", Candidate(name="x", problem="price"), "served"),
        ("free = true", Candidate(name="x", problem="free"), "served"),
        ("price = { input = 1, output = 2 }", Candidate(name="x", endpoints=("speech",)), "served"),
        ("price = { per_character = 1 }", Candidate(name="x"), "endpoint"),
        ('price = "upstream"\nmax_price = { input = 5, output = 5 }', listed("x", 6), "too_expensive"),
        ('price = "upstream"\nmarkup = 2\nmax_price = { input = 5 }', listed("x", 3), "too_expensive"),
    ],
)
def test_where_the_price_of_a_model_is_from(price: str, candidate: Candidate, state: str) -> None:
    text = f'[models."router/*"]\nprovider = "router"\n{price}\n' if price else ""
    one = only(text, candidate)
    assert one.state == state
    assert (one.model is not None) == (state == "served")
    if one.model is not None:
        assert bool(one.model.price) != one.model.free


def test_prices_of_lists_and_tables_have_the_markup_and_prices_of_the_pattern_do_not() -> None:
    def price(rule: str, candidate: Candidate) -> int | None:
        one = only(f'[models."router/*"]\nprovider = "router"\nmarkup = 1.000000001\n{rule}\n', candidate)
        assert one.model is not None
        assert one.model.price is not None
        return one.model.price[0].input

    assert price('price = "upstream"', listed("x")) == NANO + 1
    assert price('price = "public"', Candidate(name="openai/gpt-5-mini")) == 250_000_001
    assert price("price = { input = 1, output = 1 }", listed("x")) == NANO


def bounded(maximum: str, **price: Any) -> FoundModel:
    """A model of the list with a price, under a pattern with these bounds."""
    amounts: dict[str, Any] = {"input": NANO, "output": NANO, "currency": "USD", **price}
    rule = f'price = "upstream"\nmax_price = {{ {maximum} }}\n'
    candidate = Candidate(name="x", price=PriceSettings(**amounts))
    return only(f'[models."router/*"]\nprovider = "router"\n{rule}', candidate)


@pytest.mark.parametrize("unit", AmountSettings.__struct_fields__)
def test_the_highest_price_bounds_every_unit(unit: str) -> None:
    others = "".join(f"{name} = 5, " for name in ("input", "output") if name != unit)
    assert bounded(f"{others}{unit} = 9", **{unit: 9 * NANO}).state == "served"
    dearer = bounded(f"{others}{unit} = 8.99", **{unit: 9 * NANO})
    assert (dearer.state, dearer.detail) == ("too_expensive", f"{unit} = 9, above max_price of 8.99")
    unnamed = bounded(others.rstrip(", "), **{unit: 9 * NANO})
    assert unnamed.state == "too_expensive"
    assert unnamed.detail.startswith(f"{unit} = 9, ")


@pytest.mark.parametrize(
    ("maximum", "price", "detail"),
    [
        (
            "input = 5, output = 5",
            {"per_image": {"*": {"*": NANO // 10}}},
            "per_image = 0.1, and max_price has no bound for it",
        ),
        (
            "input = 5, output = 5, per_image = 0.1",
            {"per_image": {"1024x1024": {"low": NANO // 10}, "*": {"*": 0, "high": NANO // 5}}},
            "per_image = 0.2, above max_price of 0.1",
        ),
        ("input = 5, output = 5, reasoning = 0.5", {}, "reasoning = 1, above max_price of 0.5"),
        ("input = 5, output = 5", {"cache_write": 6 * NANO}, "cache_write = 6, above max_price of 5 for input"),
        (
            "input = 5, output = 5",
            {"tiers": (TierSettings(above_input_tokens=10, output=6 * NANO),)},
            "output = 6, above max_price of 5",
        ),
        (
            "input = 5, output = 5",
            {"output": 3 * NANO, "service_tier_multiplier": {"flex": Decimal("0.5"), "priority": Decimal(2)}},
            "output = 6, above max_price of 5",
        ),
    ],
)
def test_a_price_above_its_bound_is_named(maximum: str, price: dict[str, Any], detail: str) -> None:
    one = bounded(maximum, **price)
    assert (one.state, one.detail) == ("too_expensive", detail)


@pytest.mark.parametrize(
    ("maximum", "price"),
    [
        ("input = 5, output = 5, per_image = 0.2", {"per_image": {"*": {"*": NANO // 5}}}),
        ("input = 5, output = 5", {"per_request": 0, "audio_input": 5 * NANO}),
        ("input = 5, output = 5", {"service_tier_multiplier": {"flex": Decimal("0.5")}}),
        ("input = 1, output = 1, minimum = 1", {"minimum": NANO, "service_tier_multiplier": {"*": Decimal(1)}}),
    ],
)
def test_a_price_within_its_bounds_is_served(maximum: str, price: dict[str, Any]) -> None:
    assert bounded(maximum, **price).state == "served"


def test_the_bound_of_an_image_is_shown_and_in_the_audit_trail() -> None:
    pattern = '[models."router/*"]\nprovider = "router"\nprice = "upstream"\nmax_price = { per_image = 0.2 }\n'
    settings = settings_of(pattern)
    assert "per_image" in effective_models(settings, ["router/*"])
    _, new = changes(settings_of(""), settings)
    assert new["prices"]["router/*"]["max_price"] == {"per_image": "0.2"}


def test_prices_in_dollars_are_not_used_beside_prices_in_another_currency() -> None:
    own = '[models.m]\nprovider = "openai"\nprice = { input = 1, output = 1, currency = "EUR" }\n'
    assert only(own, listed("x")).state == "currency"
    house = '[models."router/*"]\nprovider = "router"\nprice = { input = 1, output = 1, currency = "EUR" }\n'
    one = only(own + house, listed("x"))
    assert one.model is not None
    assert one.model.cost is None


@pytest.mark.parametrize(
    ("name", "endpoint"),
    [
        ("nomic-embed-text", "embeddings"),
        ("whisper-1", "transcription"),
        ("tts-1", "speech"),
        ("dall-e-3", "images"),
        ("gpt-5", "chat"),
    ],
)
def test_the_endpoint_is_that_of_the_pattern_or_the_list_or_the_name(name: str, endpoint: str) -> None:
    text = f'[models."router/*"]\n{FREE}'
    by_name, by_list = found(text, Candidate(name=name), Candidate(name=f"{name}-2", endpoints=("speech",)))
    assert by_name.model is not None
    assert by_list.model is not None
    assert (by_name.model.endpoints, by_list.model.endpoints) == ((endpoint,), ("speech",))
    [own] = found(f'{text}endpoints = ["images"]\n', Candidate(name=name, endpoints=("chat",)))
    assert own.model is not None
    assert own.model.endpoints == ("images",)


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[models."a*"]\nprice = "public"\n', 'models."a*".provider: missing: a pattern names its provider'),
        ('[models."a*"]\nprovider = "no"\nprice = "public"\n', "no provider is named 'no'"),
        ('[models."a*b*"]\nprovider = "router"\nfree = true\n', "a pattern has one *"),
        ('[models."a*"]\nprovider = "router"\n', 'models."a*".price: missing'),
        ('[models."a*"]\nprovider = "router"\nfree = true\nprice = "public"\n', "exclude each other"),
        ('[models."a*"]\nprovider = "router"\nprice = { input = 0, output = 0 }\n', "every amount is zero"),
        ('[models."a*"]\nprovider = "router"\nprice = "openai/gpt-55"\n', "no public price is named"),
        ('[models."a*"]\nprovider = "router"\nprice = ["public", "openai/gpt-5"]\n', "is no source of prices"),
        ('[models."a*"]\nprovider = "router"\nfree = true\nmodel = "x"\n', 'models."a*".model: expected one *'),
        ('[models."a*"]\nprovider = "router"\nfree = true\ngroups = ["no"]\n', "no group is named 'no'"),
        ('[models."a*"]\nprovider = "router"\nfree = true\naliases = ["b"]\n', "unknown key"),
        ('[models."a*"]\nprovider = "openai"\nfree = true\n', "needs discover = true of providers.openai"),
        ('[models."a*"]\nprovider = "openai"\nprice = "upstream"\n', "needs discover = true of providers.openai"),
        (
            '[models.m]\nprovider = "openai"\nfree = true\nfallbacks = ["a*"]\n'
            '[models."a*"]\nprovider = "router"\nfree = true\n',
            "no model is named 'a*'",
        ),
    ],
)
def test_a_pattern_that_contradicts_something_is_refused(text: str, fault: str) -> None:
    assert any(fault in one for one in faults(text)), faults(text)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ('discover_every = "10s"', "discover_every"),
        ('discover_every = "8d"\ndiscover_keep = "30d"', "expected at most 7d"),
        ('discover_keep = "5m"', "expected more than discover_every"),
        ("discover_most = 0", "discover_most"),
        ("discover_max_change = 0.5", "discover_max_change"),
        ('discover = "yes"', "discover"),
    ],
)
def test_settings_of_discovery_have_bounds(line: str, fault: str) -> None:
    assert any(fault in one for one in faults(f'[providers.new]\nplugin = "openai"\n{line}\n'))


@pytest.mark.holds("configuration.md#models-that-a-provider-lists-4")
@pytest.mark.parametrize(
    ("name", "keys", "state"),
    [
        ("mystery-1", "", "price"),  # a chat, by its name
        ("mystery-1", 'endpoints = ["embeddings"]\n', "served"),
        ("text-embedding-1", "", "served"),
        ("text-embedding-1", 'endpoints = ["chat", "embeddings"]\n', "price"),
    ],
)
def test_a_chat_is_not_free_by_half_whatever_its_list_says(name: str, keys: str, state: str) -> None:
    settings = settings_of(f'[models."router/*"]\nprovider = "router"\nprice = "upstream"\n{keys}')
    price = PriceSettings(input=NANO, output=0, currency="USD")
    [found] = found_models(settings, "router", [Candidate(name=name, price=price)])
    assert found.state == state
    assert ("output: 0" in found.detail) == (state == "price")


def test_a_markup_of_zero_makes_no_model_free() -> None:
    settings = settings_of('[models."router/*"]\nprovider = "router"\nprice = "upstream"\nmarkup = 0\n')
    price = PriceSettings(input=NANO, output=NANO, currency="USD")
    [found] = found_models(settings, "router", [Candidate(name="m", price=price)])
    assert found.state == "price"
