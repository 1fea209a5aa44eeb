"""What is kept of an attempt is bounded, and has no text of an upstream or of a plugin."""

from __future__ import annotations

import msgspec
import pytest

from gateway.errors import (
    ContextLengthExceeded,
    GatewayError,
    UpstreamError,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamUnreachable,
)
from gateway.errors.attempt_answer import MOST_ANSWERS, MOST_NAME, AttemptAnswer, code_of, outcome_code


class OfPlugin(UpstreamError):
    """An error class that a plugin has made."""

    default_code = "sk-of-the-plugin"


@pytest.mark.holds("routing.md#what-each-attempt-answered-1")
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UpstreamRateLimited("sk-text"), "slow_down"),
        (UpstreamOverloaded(code="service_unavailable"), "service_unavailable"),
        (ContextLengthExceeded(), "context_length_exceeded"),
        (UpstreamRateLimited(code="internal.example.com"), "slow_down"),
        (UpstreamUnreachable(code="sk_live_0123456789"), "upstream_error"),
        (OfPlugin(), "upstream_error"),
        (RuntimeError("sk-text"), "upstream_error"),
        (None, "upstream_error"),
    ],
)
def test_code_is_one_of_the_gateway_s(error: GatewayError | None, code: str) -> None:
    assert code_of(error) == code


def test_outcome_that_is_no_code_of_the_gateway_is_an_upstream_error() -> None:
    codes = ("ok", "client_closed", "worker_died", "upstream_timeout", "invalid_api_key", "content_policy_violation")
    assert [outcome_code(code) for code in codes] == list(codes)
    assert outcome_code("internal.example.com") == outcome_code("sk-of-the-plugin") == "upstream_error"


def test_stored_text_of_all_answers_of_a_call_is_bounded() -> None:
    long = AttemptAnswer.of("p" * 500, "m" * 500, "context_length_exceeded", status=599, seconds=-1.0)
    assert (len(long.provider), len(long.model), long.ms) == (MOST_NAME, MOST_NAME, 0)
    slow = AttemptAnswer.of("p" * 500, "m" * 500, "context_length_exceeded", status=599, seconds=86_400.0)
    assert len(msgspec.json.encode([slow] * MOST_ANSWERS)) < 1500
