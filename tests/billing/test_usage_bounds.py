"""The bounds of an upstream's counts, and what replaces a count outside of them."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.billing.usage import Usage
from gateway.billing.usage_bounds import Bounds, bound_usage
from tests.quick import examples

NOTHING = Usage()
COUNTS = st.integers(0, 10**9)


@pytest.mark.holds("prices.md#counts-of-upstreams-3")
@pytest.mark.parametrize(
    ("tokens", "charged"), [(0, 0), (1000, 1000), (1164, 1164), (1165, 1000), (999_000, 1000), (10**9, 1000)]
)
def test_output_is_believed_up_to_the_limit_and_a_tenth_and_64(tokens: int, charged: int) -> None:
    counted = bound_usage(Usage(out_text=tokens), Bounds(100, limit=1000), NOTHING)
    assert counted.usage.tokens_out == charged
    assert (counted.usage.estimated, bool(counted.fault)) == ((charged != tokens),) * 2


@pytest.mark.holds("prices.md#counts-of-upstreams-4")
@pytest.mark.parametrize(("tokens", "charged"), [(0, 0), (4596, 4596), (4597, 4596), (10**9, 4596)])
def test_input_is_believed_up_to_the_bytes_the_margin_and_four_times_the_media(tokens: int, charged: int) -> None:
    counted = bound_usage(Usage(in_text=tokens), Bounds(100, media=100), NOTHING)
    assert counted.usage.tokens_in == charged
    assert (counted.usage.estimated, bool(counted.fault)) == ((charged != tokens),) * 2


@pytest.mark.holds("prices.md#counts-of-upstreams-5")
@pytest.mark.parametrize(("tokens", "charged"), [(0, 1000), (249, 1000), (250, 250), (1000, 1000)])
def test_output_below_a_quarter_of_what_was_delivered_is_our_count(tokens: int, charged: int) -> None:
    counted = bound_usage(Usage(out_reasoning=tokens), Bounds(100), Usage(out_text=1000))
    assert counted.usage.tokens_out == charged


def test_every_bucket_of_a_clipped_count_keeps_its_share() -> None:
    counted = bound_usage(
        Usage(in_text=2000, in_cached=6000, out_text=5000, out_reasoning=15_000),
        Bounds(0, limit=100),
        NOTHING,
    )
    assert (counted.usage.in_text, counted.usage.in_cached) == (1024, 3072)
    assert (counted.usage.out_text, counted.usage.out_reasoning) == (25, 75)


def test_output_without_a_known_limit_is_believed() -> None:
    assert bound_usage(Usage(out_text=10**9), Bounds(0), NOTHING).usage.out_text == 10**9


@settings(max_examples=examples(50))
@given(
    st.builds(Usage, in_text=COUNTS, in_cached=COUNTS, in_audio=COUNTS, out_text=COUNTS, out_reasoning=COUNTS),
    st.builds(Bounds, st.integers(0, 10**8), st.integers(0, 10**6), st.integers(0, 10**6)),
    st.integers(0, 10**6),
)
def test_no_count_leaves_its_bounds(usage: Usage, bounds: Bounds, delivered: int) -> None:
    counted = bound_usage(usage, bounds, Usage(out_text=delivered))
    assert counted.usage.tokens_in <= bounds.most_in
    assert delivered <= counted.usage.tokens_out * 4
    assert counted.usage.tokens_out <= max(bounds.most_out or 0, delivered)
    assert (counted.usage == usage) is not bool(counted.fault) or usage.estimated
