"""What is remembered of the output limits that a target has refused."""

from __future__ import annotations

import pytest

from gateway.routing.accepted_limit import KEPT, AcceptedLimit


def test_target_that_has_refused_nothing_gets_the_limit_in_the_usual_field():
    limits = AcceptedLimit()
    assert limits.limit(32_768) == 32_768
    assert limits.field("max_tokens") == "max_tokens"


def test_longest_limit_is_not_exceeded_and_a_lower_one_is_unchanged():
    limits = AcceptedLimit()
    limits.learn(tokens=4096)
    assert limits.limit(32_768) == 4096
    assert limits.limit(500) == 500


def test_limit_as_long_as_the_window_is_not_sent():
    limits = AcceptedLimit()
    limits.learn(window=8192)
    assert limits.limit(8192) is None
    assert limits.limit(8191) == 8191


@pytest.mark.holds("prices.md#what-is-held-9")
def test_all_is_forgotten_an_hour_after_the_first_refusal():
    limits = AcceptedLimit()
    limits.learn(tokens=4096, now=10.0)
    limits.learn(field="max_completion_tokens", now=20.0)
    assert limits.limit(32_768, 9.0 + KEPT) == 4096
    assert limits.field("max_tokens", 9.0 + KEPT) == "max_completion_tokens"
    assert limits.limit(32_768, 10.0 + KEPT) == 32_768
    assert limits.field("max_tokens", 10.0 + KEPT) == "max_tokens"
