"""A fallback is another model: the requested one is tried once more before it, if its failure may be short."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.errors import (
    UpstreamAuthError,
    UpstreamError,
    UpstreamInvalidResponse,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
    UpstreamUnreachable,
)
from gateway.plugins.upstream_errors import error_of_answer
from gateway.routing import retry_policy
from tests.routing.test_dispatcher import Option, Stage, place, script


class Alone(Stage):
    """Target a of the model alone, then the fallback c."""

    def __init__(self, **model: Any) -> None:
        super().__init__(fallbacks=["large"], **model)

    def options(self) -> list[Option]:
        return [option for option in super().options() if place(option.candidate) in ("a0", "c0")]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_policy, "SOON", (0.001, 0.002))


async def places(stage: Stage, failure: Any) -> str:
    failures = failure if isinstance(failure, list) else [failure] * 3
    await stage.call(script(a=[*failures, "well"]))
    return "".join(at[0] for at in stage.places)


def answered(status: int, message: str = "no", **headers: str) -> Any:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return error_of_answer(status, headers, b'{"error": {"message": "%b"}}' % message.encode())


@pytest.mark.holds("routing.md#attempts-2")
@pytest.mark.parametrize("status", [500, 502, 503, 504, 529])
async def test_a_short_failure_is_tried_once_more_at_the_same_model(status: int) -> None:
    assert await places(Alone(), answered(status)) == "aac"
    assert await places(Alone(), [answered(status)]) == "aa"


@pytest.mark.parametrize(
    "failure", [UpstreamUnreachable(), UpstreamError(), UpstreamOverloaded()], ids=lambda error: type(error).__name__
)
async def test_a_broken_connection_is_tried_once_more(failure: UpstreamError) -> None:
    assert await places(Alone(), failure) == "aac"


@pytest.mark.parametrize(
    "failure",
    [
        UpstreamTimeout(),
        UpstreamAuthError(),
        UpstreamInvalidResponse(),
        UpstreamRateLimited(),
        answered(404),
        answered(402),
        answered(429),
        answered(429, retry_after="30"),
        answered(503, retry_after="30"),
    ],
    ids=lambda error: f"{type(error).__name__} {error.detail}",
)
async def test_any_other_failure_leads_to_the_fallback_at_once(failure: UpstreamError) -> None:
    assert await places(Alone(), failure) == "ac"


@pytest.mark.parametrize(
    "failure",
    [
        answered(429, retry_after_ms="50"),
        answered(429, "Please try again in 50ms."),
        answered(429, "Retry after 0.05 seconds"),
        UpstreamRateLimited(retry_after=0.05),
    ],
    ids=["header", "milliseconds", "seconds", "plugin"],
)
async def test_a_short_wait_that_a_rate_limit_asks_for_is_kept(failure: UpstreamError) -> None:
    started = time.monotonic()
    assert await places(Alone(), [failure]) == "aa"
    assert time.monotonic() - started >= 0.05
    assert await places(Alone(), failure) == "aac"


async def test_patience_bounds_the_wait() -> None:
    assert await places(Alone(patience=0.01), answered(429, retry_after_ms="50")) == "ac"
    assert await places(Alone(patience=0), answered(429, retry_after_ms="1")) == "ac"


@pytest.mark.parametrize(("retries", "expected"), [(0, "a"), (1, "ac"), (2, "aac")])
async def test_an_attempt_is_left_for_the_fallback(retries: int, expected: str) -> None:
    stage = Alone(retries=retries)
    if retries:
        assert await places(stage, UpstreamUnreachable()) == expected
        return
    with pytest.raises(UpstreamUnreachable):
        await places(stage, UpstreamUnreachable())


async def test_another_target_of_the_same_model_comes_first() -> None:
    stage = Stage(fallbacks=["large"])
    assert await stage.call(script(a=UpstreamUnreachable(), b="well")) == "well"
    assert [at[0] for at in stage.places] == ["a", "b"]


async def test_the_attempt_leaves_half_of_the_budget_to_fallbacks() -> None:
    stage = Alone()
    seen = [await places(stage, UpstreamTimeout()) for _ in range(6)]
    assert set(seen) == {"ac"}
    assert await places(stage, UpstreamUnreachable()) == "ac"


async def test_a_target_whose_circuit_opens_meanwhile_is_followed_by_the_fallback() -> None:
    stage = Alone()
    circuit = stage.options()[0].candidate.circuit

    def opens(at: str) -> Any:
        if at[0] != "a":
            return "answer"
        circuit.open("failures", time.monotonic(), 30)
        return UpstreamUnreachable()

    assert await stage.call(opens) == "answer"
    assert [at[0] for at in stage.places] == ["a", "c"]


async def test_a_model_alone_uses_all_its_retries() -> None:
    stage = Stage()
    only = stage.options()[:1]
    assert await stage.call(script(a=[UpstreamUnreachable(), UpstreamUnreachable(), "well"]), only) == "well"
    assert len(stage.places) == 3
