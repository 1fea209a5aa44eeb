"""Prices: every key of the price record, exact to the nano-unit, versioned, and held before it is charged."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from gateway.amounts import NANO
from gateway.billing.price import Price, price_on
from gateway.billing.price_terms import OwnPrice
from gateway.billing.usage import ImageCount, Usage
from gateway.config.loader import parse
from gateway.config.settings import PriceSettings
from gateway.ledger.account_terms import own_price_form, parse_own_price
from tests.quick import examples

TOKENS = {  # bucket → the keys that may price it, the first that is said wins
    "in_text": ("input",),
    "in_cached": ("cached_input", "input"),
    "in_cache_write_short": ("cache_write", "input"),
    "in_cache_write_long": ("cache_write_long", "cache_write", "input"),
    "in_audio": ("audio_input", "input"),
    "in_audio_cached": ("cached_audio_input", "audio_input", "input"),
    "in_image": ("image_input", "input"),
    "out_text": ("output",),
    "out_reasoning": ("reasoning", "output"),
    "out_audio": ("audio_output", "output"),
    "out_image": ("image_output", "output"),
    "characters": ("per_character",),
}
UNITS = {
    "requests": "per_request",
    "search_units": "per_search_unit",
    "web_searches": "per_web_search",
    "audio_seconds_in": "per_second_in",
    "audio_seconds_out": "per_second_out",
}
PLAIN = (
    "requests",
    "in_text",
    "out_text",
    "estimated",
    "provider_cost",
)  # what a price of text alone looks at, or none
AMOUNTS = sorted({key for keys in TOKENS.values() for key in keys} | set(UNITS.values()))


def settings_of(document: dict[str, Any] | list[Any] | str) -> tuple[PriceSettings, ...]:
    """What a model's `price` says."""
    model = {"provider": "p", "price": document, "endpoints": []}
    prices = parse({"providers": {"p": {"plugin": "openai"}}, "models": {"m": model}}).models["m"].price
    assert prices is not None
    return prices


def price_of(**document: Any) -> Price:
    return Price.of(settings_of(document)[0])


def nano(amount: str) -> int:
    return int(Decimal(amount) * NANO)


# The reference -------------------------------------------------------------------------------------------------------


def reference(document: dict[str, Any], usage: Usage, service_tier: str | None) -> int:
    """What docs/prices.md says of a price, computed once more in fractions of a currency unit."""
    tables = [document, *(t for t in document.get("tiers", ()) if usage.tokens_in > t["above_input_tokens"])]
    table = document if len(tables) == 1 else {**document, **tables[-1]}
    said = {name: Fraction(table[name]) for name in (*AMOUNTS, "minimum") if name in table}
    total = Fraction(0)
    for bucket, keys in TOKENS.items():
        rate = next((said[key] for key in keys if key in said), Fraction(0))
        total += getattr(usage, bucket) * rate / 1_000_000
    for counter, key in UNITS.items():
        count = getattr(usage, counter)
        exact = Fraction(round(count * 1_000_000), 1_000_000) if isinstance(count, float) else count
        total += exact * said.get(key, 0)
    if usage.images is not None:
        total += usage.images.count * image_rate(document.get("per_image", {}), usage.images)
    total *= Fraction(document.get("service_tier_multiplier", {}).get(service_tier, 1))
    return max(math.ceil(total * NANO), math.ceil(said.get("minimum", Fraction(0)) * NANO))


def image_rate(table: dict[str, dict[str, Decimal]], images: ImageCount) -> Fraction:
    for size in (images.size, "*"):
        for quality in (images.quality, "*"):
            if quality in table.get(size, {}):
                return Fraction(table[size][quality])
    return max((Fraction(value) for row in table.values() for value in row.values()), default=Fraction(0))


def amounts(places: int = 9) -> st.SearchStrategy[Decimal]:
    return st.integers(0, 200 * 10**places).map(lambda value: Decimal(value).scaleb(-places))


def any_charge(document: dict[str, Any]) -> bool:
    tables = [document, *document.get("tiers", ()), *document.get("per_image", {}).values()]
    return any(isinstance(value, Decimal) and value for table in tables for value in table.values())


NAMES = st.sampled_from(["1024x1024", "hd", "low", "*"])
PRICES = st.fixed_dictionaries(
    {},
    optional={name: amounts() for name in (*AMOUNTS, "minimum")}
    | {
        "per_image": st.dictionaries(NAMES, st.dictionaries(NAMES, amounts(), min_size=1), min_size=1),
        "tiers": st.lists(
            st.fixed_dictionaries(
                {"above_input_tokens": st.integers(1, 300_000)},
                optional={name: amounts() for name in ("input", "cached_input", "cache_write", "output", "minimum")},
            ),
            max_size=3,
            unique_by=lambda tier: tier["above_input_tokens"],
        ).map(lambda tiers: sorted(tiers, key=lambda tier: tier["above_input_tokens"])),
        "service_tier_multiplier": st.dictionaries(
            st.sampled_from(["flex", "priority"]), st.sampled_from(["0.5", "0.333333", "1.8", "2"]).map(Decimal)
        ),
    },
).filter(any_charge)
COUNTS = st.integers(0, 400_000)
USAGES = st.builds(
    Usage,
    **dict.fromkeys(TOKENS, COUNTS),
    **{name: st.integers(0, 5) for name in ("requests", "search_units", "web_searches")},
    audio_seconds_in=st.floats(0, 10_000),
    audio_seconds_out=st.floats(0, 10_000),
    images=st.none() | st.builds(ImageCount, st.integers(0, 10), NAMES, NAMES),
)


@pytest.mark.holds("prices.md#what-is-charged-18")
@pytest.mark.slow
@settings(max_examples=examples(500), deadline=None)
@given(PRICES, USAGES, st.sampled_from([None, "flex", "priority", "default"]))
def test_cost_is_the_fraction_rounded_up_once(document: dict[str, Any], usage: Usage, tier: str | None) -> None:
    assert price_of(**document).cost(usage, service_tier=tier) == reference(document, usage, tier)


SPARSE = st.fixed_dictionaries({}, optional=dict.fromkeys(TOKENS, COUNTS)).map(lambda counts: Usage(**counts))  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=examples(500), deadline=None)
@given(PRICES, SPARSE, st.sampled_from([None, "flex", "priority", "default"]))
def test_fast_cost_of_few_kinds_equals_the_full_sum(document: dict[str, Any], usage: Usage, tier: str | None) -> None:
    assert price_of(**document).cost(usage, service_tier=tier) == reference(document, usage, tier)


@pytest.mark.parametrize("field", [field for field in structs.fields(Usage) if field.name not in PLAIN])
def test_usage_with_more_than_plain_text_is_not_plain(field: structs.FieldInfo) -> None:
    assert Usage(requests=0, in_text=1, out_text=2, estimated=True, provider_cost=3).is_plain
    counted = ImageCount(1) if field.name == "images" else 1
    assert not Usage(**{field.name: counted}).is_plain  # type: ignore[arg-type]


@pytest.mark.holds("prices.md#what-is-held-1")
@pytest.mark.slow
@settings(max_examples=examples(200), deadline=None)
@given(PRICES, st.integers(0, 1_000_000), st.integers(0, 100_000), st.integers(0, 8))
def test_hold_covers_every_kind_that_the_tokens_may_have(
    document: dict[str, Any], prompt: int, output: int, kind: int
) -> None:
    price = price_of(**document)
    held = price.worst(Usage(in_text=prompt, out_text=output))
    prompt_kind = ("in_text", "in_cached", "in_cache_write_short", "in_cache_write_long")[kind % 4]
    output_kind = ("out_text", "out_reasoning")[kind % 2]
    assert price.cost(Usage(**{prompt_kind: prompt, output_kind: output})) <= held  # type: ignore[arg-type]
    assert price.cost(Usage(in_text=prompt), service_tier="flex") <= held or "flex" in document.get(
        "service_tier_multiplier", {}
    )


@pytest.mark.holds("prices.md#what-is-charged-6")
def test_cached_audio_has_its_own_price_where_it_is_set() -> None:
    price = price_of(
        input="0.3", audio_input=1, cached_audio_input="0.1", tiers=[{"above_input_tokens": 10, "input": 1}]
    )
    for prompt in (5, 50):
        assert price.cost(Usage(in_audio_cached=prompt)) == prompt * 100
        assert price.worst(Usage(in_audio=prompt)) == prompt * 1000
    dear = price_of(input=1, audio_input=1, cached_audio_input=7)
    assert dear.worst(Usage(in_audio=5)) == dear.cost(Usage(in_audio_cached=5)) == 35_000


@pytest.mark.parametrize(
    ("document", "version"),
    [
        ({"input": 1, "output": 2}, "ae9ab18ec1f3"),
        ({"input": 1, "audio_input": 3, "cached_input": Decimal("0.5")}, "c4d6d052b654"),
    ],
)
def test_version_of_a_price_is_that_of_earlier_releases(document: dict[str, Any], version: str) -> None:
    assert price_of(**document).version == version


@pytest.mark.holds("prices.md#what-is-held-1")
def test_hold_covers_an_answer_of_image_tokens() -> None:
    price = price_of(input=1, output=8, image_output=96, tiers=[{"above_input_tokens": 10, "output": 16}])
    for prompt in (1, 11):
        spent = price.cost(Usage(in_text=prompt, out_image=1290))
        assert price.worst(Usage(in_text=prompt, out_text=1290)) == spent


# Rules ---------------------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#prices-1")
def test_fraction_of_a_nano_unit_is_rounded_up_only_once() -> None:
    price = price_of(input="0.0000001", output="0.0000001")
    assert price.cost(Usage(in_text=1, out_text=1)) == 1
    assert price.cost(Usage(in_text=10_000, out_text=1)) == 2


@pytest.mark.holds(
    "prices.md#what-is-charged-1",
    "prices.md#what-is-charged-2",
    "prices.md#what-is-charged-3",
    "prices.md#what-is-charged-4",
    "prices.md#what-is-charged-5",
    "prices.md#what-is-charged-7",
    "prices.md#what-is-charged-8",
    "prices.md#what-is-charged-9",
)
def test_bucket_without_a_price_costs_its_text_price() -> None:
    price = price_of(input=1, output=2)
    for bucket, keys in TOKENS.items():
        if bucket != "characters":
            expected = nano("1") if keys[-1] == "input" else nano("2")
            assert price.cost(Usage(**{bucket: 1_000_000})) == expected, bucket  # type: ignore[arg-type]


@pytest.mark.holds("prices.md#what-is-charged-14")
def test_tier_applies_to_the_whole_request_and_inherits_missing_prices() -> None:
    price = price_of(input=1, cached_input="0.5", output=10, tiers=[{"above_input_tokens": 1000, "input": 2}])
    assert price.cost(Usage(in_text=1000)) == 1000 * 1000
    assert price.cost(Usage(in_text=1001)) == 1001 * 2000
    assert price.cost(Usage(in_text=1, in_cached=1000)) == 2000 + 500 * 1000


def test_service_tier_multiplies_a_tier_too() -> None:
    price = price_of(
        input=1,
        output=1,
        tiers=[{"above_input_tokens": 10, "input": 4}],
        service_tier_multiplier={"flex": Decimal("0.5")},
    )
    assert price.cost(Usage(in_text=20), service_tier="flex") == 20 * 2000
    assert price.cost(Usage(in_text=20), service_tier="default") == 20 * 4000


@pytest.mark.holds("prices.md#what-is-charged-17")
def test_minimum_price_is_the_lowest_charge_of_a_call() -> None:
    price = price_of(input=1, output=1, minimum="0.01")
    assert price.cost(Usage(in_text=1)) == nano("0.01")


@pytest.mark.holds("prices.md#what-is-charged-15")
def test_image_costs_by_size_and_quality_with_fallbacks() -> None:
    price = price_of(per_image={"1024x1024": {"hd": "0.08", "*": "0.04"}, "*": {"hd": "0.2", "*": "0.1"}})
    for size, quality, amount in [
        ("1024x1024", "hd", "0.08"),
        ("1024x1024", "low", "0.04"),
        ("8x8", "hd", "0.2"),
        ("8x8", "low", "0.1"),
    ]:
        assert price.cost(Usage(images=ImageCount(3, size, quality))) == 3 * nano(amount)


@pytest.mark.holds("prices.md#what-is-charged-15")
def test_image_without_a_price_entry_costs_the_highest_price() -> None:
    price = price_of(per_image={"1024x1024": {"hd": "0.08"}, "512x512": {"hd": "0.02"}})
    assert price.cost(Usage(images=ImageCount(1, "9x9", "odd"))) == nano("0.08")


def test_model_without_a_price_is_free() -> None:
    assert Price.of(None).cost(Usage(in_text=10**6, out_text=10**6)) == 0


@pytest.mark.holds("prices.md#what-is-charged-16")
@pytest.mark.parametrize(
    ("asked", "used", "billed"),
    [
        (None, None, 1),
        ("flex", None, Fraction(1, 2)),  # an upstream that does not say is taken by its word
        ("flex", "flex", Fraction(1, 2)),
        ("flex", "default", 1),  # the cheap tier was not granted
        ("priority", "default", 1),
        ("priority", "priority", 2),
        ("auto", "flex", Fraction(1, 2)),
        ("auto", "priority", 1),  # nobody asked for it
        ("flex", "priority", 1),
        ("priority", "ultra", 1),
    ],
)
def test_billed_tier_is_the_one_used_but_never_dearer_than_requested(
    asked: str | None, used: str | None, billed: Fraction
) -> None:
    price = price_of(input=1, output=1, service_tier_multiplier={"flex": Decimal("0.5"), "priority": Decimal(2)})
    usage = Usage(in_text=1_000_000)
    cost = price.cost(usage, service_tier=price.billed_tier(asked, used))
    assert cost == billed * NANO
    assert cost <= price.worst(usage, service_tier=asked)


# Versions and dates --------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#prices-that-change-2")
def test_price_version_is_equal_only_for_equal_amounts() -> None:
    one, same, other = price_of(input=1, output=2), price_of(output="2.0", input=1), price_of(input=1, output=3)
    assert one.version == same.version
    assert len(one.version) == 12
    assert len({one.version, other.version, price_of(input=1, output=2, minimum=1).version}) == 3


@pytest.mark.holds("prices.md#prices-that-change-2")
def test_price_version_has_the_start_date_of_the_price() -> None:
    plain, dated = price_of(input=1, output=2), price_of(input=1, output=2, effective_from="2026-11-01")
    assert dated.version == f"{plain.version}@2026-11-01"


@pytest.mark.holds("prices.md#prices-that-change-1")
def test_price_changes_at_midnight_utc_of_its_date() -> None:
    old, new = (
        Price.of(price)
        for price in settings_of([{"input": 1, "output": 1}, {"input": 2, "output": 2, "effective_from": "2099-01-01"}])
    )
    midnight = 4_070_908_800
    assert price_on((old, new), midnight - 1) is old
    assert price_on((old, new), midnight) is new
    assert price_on((new,), 0) is new  # a clock that went astray makes nothing free


def test_price_is_equal_after_encoding_and_decoding() -> None:
    price = price_of(input=1, output=2, tiers=[{"above_input_tokens": 5, "input": 2}])
    assert msgspec.json.decode(msgspec.json.encode(price), type=Price) == price


def test_a_hold_covers_a_shorter_prompt_where_a_higher_tier_is_cheaper() -> None:
    price = price_of(input=10, output=10, tiers=[{"above_input_tokens": 1000, "input": 1, "output": 1}])
    upper = Usage(in_text=1200, out_text=500)
    assert price.worst(upper) >= max(price.cost(Usage(in_text=tokens, out_text=500)) for tokens in (900, 1000, 1200))


# Factors -------------------------------------------------------------------------------------------------------------

AMOUNT = st.integers(0, 10**6).map(lambda number: Decimal(number).scaleb(-9))
FACTORS = st.integers(0, 1000 * NANO) | st.sampled_from([0, 1, NANO // 2, NANO, 1_370_000_000, 1000 * NANO])


@settings(max_examples=examples(400), deadline=None)
@given(
    st.fixed_dictionaries(
        {"input": AMOUNT, "output": AMOUNT, "per_request": AMOUNT, "minimum": AMOUNT.filter(bool)},
        optional={
            "tiers": st.just([{"above_input_tokens": 100, "input": 3, "output": 5, "minimum": 2}]),
            "service_tier_multiplier": st.just({"flex": Decimal("0.5"), "priority": 2}),
        },
    ),
    st.builds(Usage, in_text=st.integers(0, 500), out_text=st.integers(0, 10**9), requests=st.integers(0, 1)),
    st.sampled_from([None, "flex", "priority"]),
    FACTORS,
)
def test_factor_multiplies_the_exact_cost_before_it_is_rounded_up_once(
    document: dict[str, Any], usage: Usage, tier: str | None, factor: int
) -> None:
    price = price_of(**document)
    scaled = price.times(factor)
    assert scaled.cost(usage, service_tier=tier) == math.ceil(exact(price, usage, tier) * Fraction(factor, NANO))
    assert scaled.worst(usage, service_tier=tier) >= scaled.cost(usage, service_tier=tier)
    assert scaled.version == price.version
    assert price.times(NANO) is price


def exact(price: Price, usage: Usage, tier: str | None) -> Fraction:
    """The cost at the list price in nano units, not rounded."""
    at = price.at(usage.tokens_in)
    million = usage.in_text * at.input + usage.out_text * at.output + usage.requests * at.per_request * 1_000_000
    top, bottom = price.service_tier_multiplier.get(tier or "", (1, 1))
    return max(Fraction(million * top, bottom * 1_000_000), Fraction(at.minimum))


def test_own_amounts_replace_those_of_the_list_price_in_all_tiers_and_its_defaults() -> None:
    (listed,) = settings_of(
        {"input": 1, "output": 4, "tiers": [{"above_input_tokens": 10, "input": 2, "output": 8}], "per_request": 3}
    )
    own = OwnPrice(amounts=(("input", NANO // 2), ("output", 2 * NANO)))
    price = own.of(listed)
    tier = price.at(11)
    assert (price.input, price.cached_input, price.output, price.reasoning) == (
        NANO // 2,
        NANO // 2,
        2 * NANO,
        2 * NANO,
    )
    assert (tier.input, tier.output, tier.per_request) == (NANO // 2, 2 * NANO, 3 * NANO)
    assert price.version not in ("", Price.of(listed).version)
    assert OwnPrice(amounts=(("input", 7),)).of(None).input == 7  # of a free model
    assert own_price_form(own) == {"input": "0.5", "output": "2"}
    for one in (own, OwnPrice(), OwnPrice(0), OwnPrice(1_370_000_000)):
        assert parse_own_price(own_price_form(one)) == one
