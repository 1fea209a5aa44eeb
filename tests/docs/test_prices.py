"""The figures of docs/prices.md are those of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.api.endpoints import chat_output_limit
from gateway.billing import delivered, token_estimate, usage, usage_bounds
from gateway.inference import disconnects

PAGE = (Path(__file__).parents[2] / "docs" / "prices.md").read_text(encoding="utf-8")
TEXT = re.sub(r"\s+", " ", re.sub(r"<!--.*?-->", "", PAGE, flags=re.DOTALL))


@pytest.mark.holds(
    "prices.md#counts-of-upstreams-7", "prices.md#leaving-early-4", "prices.md#estimates-20", "prices.md#audio-5"
)
@pytest.mark.parametrize(
    "claim",
    [
        f"or {chat_output_limit.DEFAULT_LIMIT:,} tokens if the model has none",
        f"at most half of the money that no call holds, and at least {chat_output_limit.LEAST_OUTPUT:,} tokens",
        f"if that is {chat_output_limit.MIN_OUTPUT} or more",
        f"above {usage.MAX_TOKENS:,} |",
        f"a tenth and {usage_bounds.TOKENS_ABOVE_LIMIT} tokens |",
        f"{usage_bounds.TOKENS_ABOVE_REQUEST:,} tokens and four times the estimate of its media",
        f"or {chat_output_limit.DEFAULT_LIMIT:,}, or what was delivered",
        f"audio ({delivered.AUDIO_PER_SECOND} tokens a second)",
        f"images of a chat answer ({delivered.PER_IMAGE:,} tokens each)",
        f"More than {usage.MAX_SEARCHES:,} searches in one call count as an error",
        f"at most {disconnects.USAGE_WITHIN:g} seconds more",
        f"for at most {disconnects.DRAIN_WITHIN:g} seconds",
        f"at most {disconnects.MAX_DRAINS} answers of an account",
        f"{token_estimate.PREVIEW} tokens for each preview",
        f"{token_estimate.PER_PAGE:,} for each page",
        f"one page for {token_estimate.UNKNOWN_PAGE // 1024} KiB",
        f"After {token_estimate.LOOKED_AT} media parts",
    ],
)
def test_figure_on_the_page_is_that_of_the_code(claim: str) -> None:
    assert claim in TEXT


def test_factors_that_the_page_writes_in_words_are_those_of_the_code() -> None:
    assert "estimate plus a quarter" in TEXT
    assert token_estimate.SAFETY == (5, 4)
    assert "(times `n`), a tenth and" in TEXT
    assert usage_bounds.ABOVE_LIMIT == (11, 10)
    assert "four times the estimate of its media" in TEXT
    assert usage_bounds.MEDIA_FACTOR == 4
    assert "output below a quarter of our count" in TEXT
    assert usage_bounds.BELOW_DELIVERED == 4
