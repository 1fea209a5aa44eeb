"""The items of a cost add up to what is charged."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.billing.itemised_cost import itemised_cost
from gateway.billing.price import Price, Tier
from gateway.billing.usage import ImageCount, Usage
from tests.quick import examples

AMOUNT, COUNT = st.integers(0, 10**10), st.integers(0, 10**6)
PRICED = (
    "input", "cached_input", "cache_write", "cache_write_long", "output", "reasoning", "audio_input", "image_input",
    "audio_output", "image_output", "per_character", "per_second_in", "per_second_out", "per_request",
    "per_search_unit", "per_web_search", "minimum",
)  # fmt: skip
TABLES = {
    "cached_audio_input": st.none() | AMOUNT,
    "per_image": st.just({"*": {"*": 5, "hd": 9}}),
    "service_tier_multiplier": st.just({"flex": (1, 3)}),
}
PLAIN = st.builds(Price, **dict.fromkeys(PRICED, AMOUNT), **TABLES)
TIERED = st.builds(lambda price, dear: _with_tier(price, dear), PLAIN, PLAIN)
USAGE = st.builds(
    Usage,
    **{
        name: COUNT
        for name in Usage.__struct_fields__
        if name not in ("estimated", "provider_cost", "images", "audio_seconds_in", "audio_seconds_out")
    },
    images=st.none() | st.builds(ImageCount, st.integers(1, 9), st.just(""), st.sampled_from(["", "hd"])),
    audio_seconds_in=st.floats(0, 1000),
    audio_seconds_out=st.floats(0, 1000),
)


def _with_tier(price: Price, dear: Price) -> Price:
    fields = {name: getattr(price, name) for name in price.__struct_fields__}
    return Price(**fields | {"tiers": (Tier(1_000_000, dear),)})


@settings(max_examples=examples(200), deadline=None)
@given(price=PLAIN | TIERED, usage=USAGE, tier=st.sampled_from([None, "flex"]))
def test_items_add_up_to_the_charge(price: Price, usage: Usage, tier: str | None) -> None:
    found = itemised_cost(price, usage, service_tier=tier)
    assert found.cost == price.cost(usage, service_tier=tier)
    total = sum((item.cost for item in found.items), Fraction()) * found.tier_factor
    assert found.cost - 1 < total <= found.cost or found.cost == found.minimum


def test_factor_of_an_account_is_applied_before_the_one_rounding() -> None:
    price, usage = Price(input=1_000_000, minimum=3), Usage(in_text=11)
    assert itemised_cost(price, usage, price_factor=Fraction("1.37")).cost == 16
    assert itemised_cost(price, Usage(in_text=1), price_factor=Fraction("1.37")).cost == 5


def test_call_that_was_no_request_costs_nothing() -> None:
    assert itemised_cost(Price(per_request=5, minimum=7), Usage(requests=0)).cost == 0
