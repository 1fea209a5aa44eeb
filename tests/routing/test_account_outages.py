"""A target that keeps failing an account's calls gets probes of it only, while another target serves them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.errors import UpstreamError, UpstreamRateLimited, UpstreamTimeout, UpstreamUnreachable
from gateway.http_client.send_state import SendState, track
from gateway.routing import account_outages, retry_policy
from gateway.routing.account_outages import FORGET, PROBE_EVERY, AccountOutages
from tests.polling import until
from tests.routing.test_before_fallback import Alone
from tests.routing.test_dispatcher import Play, Stage


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_policy, "SOON", (0.001, 0.002))


def down() -> AccountOutages:
    outages = AccountOutages()
    outages.failed(UpstreamError(), "a", 0.0)
    outages.failed(UpstreamError(), "a", 1.0)
    return outages


def test_an_account_probes_once_in_a_while() -> None:
    outages = down()
    times = [second for second in range(1, 64) if not outages.is_down("a", float(second))]
    assert times == [21, 41, 61]
    assert PROBE_EVERY == 20.0


def test_other_accounts_are_not_kept_away() -> None:
    assert not down().is_down("b", 2.0)


def test_an_answer_to_any_account_ends_it() -> None:
    outages = down()
    outages.answered()
    assert not outages.is_down("a", 2.0)
    outages.failed(UpstreamError(), "a", 3.0)
    assert not outages.is_down("a", 3.0), "one failure is none"


@pytest.mark.parametrize("error", [UpstreamTimeout(), UpstreamRateLimited(), UpstreamError().began_at("request")])
def test_failures_that_a_request_may_cause_do_not_count(error: UpstreamError) -> None:
    outages = AccountOutages()
    for _ in range(9):
        outages.failed(error, "a", 0.0)
    assert not outages.is_down("a", 1.0)


def test_accounts_that_are_kept_are_bounded() -> None:
    outages = AccountOutages()
    for number in range(500):
        for _ in range(2):
            outages.failed(UpstreamError(), f"a{number}", 0.0)
    assert len(outages.until) <= account_outages.MOST
    assert outages.is_down("a499", 1.0)


def test_accounts_that_other_workers_report_are_bounded() -> None:
    outages = AccountOutages()
    for number in range(500):
        outages.apply(f"a{number}", 20.0, 0.0)
    assert len(outages.until) <= account_outages.MOST
    assert len(outages.rows) <= account_outages.MOST
    assert outages.is_down("a499", 1.0)


@pytest.mark.holds("routing.md#health-6")
def test_failures_of_long_ago_do_not_count() -> None:
    outages = AccountOutages()
    outages.failed(UpstreamError(), "a", 0.0)
    outages.failed(UpstreamError(), "a", FORGET)
    assert not outages.is_down("a", FORGET + 1), "they are not in a row"


@pytest.mark.parametrize("reported", [False, True])
def test_accounts_that_make_no_more_calls_are_forgotten(reported: bool) -> None:
    outages = down()
    outages.apply("b", 20.0, 0.0)
    later = FORGET + 30
    if reported:
        outages.apply("c", 20.0, later)
    else:
        assert not outages.is_down("c", later)
    assert {*outages.until, *outages.rows} == ({"c"} if reported else set())
    outages.failed(UpstreamError(), "a", later)
    assert not outages.is_down("a", later + 1), "one failure is none"


async def served(stage: Stage, play: Play, account: str = "a") -> str:
    track(SendState(account=account))
    await stage.call(play)
    return "".join(at[0] for at in stage.places)


@pytest.mark.holds("routing.md#health-6")
async def test_calls_in_an_outage_use_the_fallback_and_few_attempts_and_return_when_it_is_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(account_outages, "PROBE_EVERY", 0.3)
    stage, ends = Alone(), time.monotonic() + 0.8

    def play(at: str) -> Any:
        return UpstreamError() if at[0] == "a" and time.monotonic() < ends else "answer"

    assert await served(stage, play) == "aac"
    seen = []
    while time.monotonic() < ends - 0.05:
        seen.append(await served(stage, play))
    assert set(seen) <= {"c", "ac"}
    assert seen.count("ac") <= 3
    assert len(seen) > 10

    async def back() -> bool:
        return await served(stage, play) == "a"

    await until(back)
    assert await served(stage, play) == "a"


async def test_a_model_alone_is_called_all_the_same() -> None:
    stage = Stage()
    only = stage.options()[:1]
    for _ in range(3):
        with pytest.raises(UpstreamUnreachable):
            await stage.call(lambda at: UpstreamUnreachable(), only)
        only[0].candidate.circuit.recovered()
        only[0].candidate.circuit.outages.failed(UpstreamError(), "", time.monotonic())
        only[0].candidate.circuit.outages.failed(UpstreamError(), "", time.monotonic())
    assert await stage.call(lambda at: "well", only) == "well"
