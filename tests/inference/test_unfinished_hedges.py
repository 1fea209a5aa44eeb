"""What a ledger line says of the attempts of a hedge that ends before either has answered, and of a resent request."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.errors import UpstreamTimeout
from gateway.http_client.send_state import SendState, track
from gateway.inference.call import Call
from gateway.ledger import Ledger, LedgerLine
from gateway.routing.attempt_answers import answers_of
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client
from tests.delays import forever
from tests.inference.test_attempt_answers import answers, line_of
from tests.ledger_lines import last_line
from tests.polling import until
from tests.routing.test_dispatcher import Stage

PRICE = {"price": {"input": 1, "output": 2}}


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream, other: FakeUpstream) -> Settings:
    """Hedged models at the providers a and b, or twice at a, and one that is not hedged."""
    urls = {"a": upstream.base_url, "b": other.base_url}
    a, again, b = ({"provider": name, "model": f"at-{number}"} for number, name in enumerate("aab"))
    raced = {"targets": [a, b], "strategy": "in_order", "hedge_after": 0.1, **PRICE}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {name: {"plugin": "openai", "base_url": url} for name, url in urls.items()},
            "models": {
                "raced": raced,
                "twins": {**raced, "targets": [a, again]},
                "brief": {**raced, "hedge_after": 0.35, "total_timeout": 0.4},
                "third": {**raced, "targets": [a, again, b], "total_timeout": 0.6},
                "alone": {"provider": "a", "retries": 0, **PRICE},
            },
        },
        demo=True,
    )


def refused_limit(*, delay: float) -> Reply:
    """The gateway sends the request once more, with a lower output limit."""
    reply = Reply.error(400, "max_tokens is too large: at most 4096", code="invalid_value")
    reply.delay = delay
    return reply


async def ended(client: Client, gateway: Gateway, ledger: Ledger, model: str, how: str, *, failed: int) -> LedgerLine:
    """The line of a stream whose hedge has ended so, after `failed` of its attempts had failed."""
    calls = gateway.active_calls._calls
    asking = asyncio.create_task(client.stream(model=model))

    def racing() -> Call | None:
        found = next((call for call in calls.values() if len(call.attempts) == 2), None)
        return found if found is not None and len(found.sending.failures) == failed else None

    call = await until(racing)
    if how == "left":
        asking.cancel()
    else:
        assert gateway.active_calls.cancel(call.request_id) is call
    await asyncio.wait([asking])
    return await until(lambda: last_line(ledger, "acme", call.request_id))


@pytest.mark.holds("routing.md#what-each-attempt-answered-1")
@pytest.mark.parametrize(("how", "outcome"), [("left", "client_closed"), ("cancelled", "request_cancelled")])
@pytest.mark.parametrize("model", ["raced", "twins"])
async def test_attempts_of_a_hedge_that_nobody_won_have_the_outcome_of_the_call(
    client: Client,
    gateway: Gateway,
    upstream: FakeUpstream,
    other: FakeUpstream,
    ledger: Ledger,
    model: str,
    how: str,
    outcome: str,
) -> None:
    upstream.enqueue(Reply.silence(), Reply.silence())
    other.enqueue(Reply.silence())
    line = await ended(client, gateway, ledger, model, how, failed=0)
    assert (line.meta["outcome"], line.meta["attempts"]) == (outcome, 2)
    assert answers(line) == [("a", model, outcome, 0), ("a" if model == "twins" else "b", model, outcome, 0)]
    first, second = (answer["ms"] for answer in line.json_form()["answers"])
    assert first >= second + 95


@pytest.mark.parametrize(("how", "outcome"), [("left", "client_closed"), ("cancelled", "request_cancelled")])
async def test_attempt_of_a_hedge_that_failed_before_keeps_its_own_code(
    client: Client,
    gateway: Gateway,
    upstream: FakeUpstream,
    other: FakeUpstream,
    ledger: Ledger,
    how: str,
    outcome: str,
) -> None:
    upstream.enqueue(Reply.silence())
    other.enqueue(Reply.error(500, "no"))
    line = await ended(client, gateway, ledger, "raced", how, failed=1)
    assert answers(line) == [("b", "raced", "upstream_error", 500), ("a", "raced", outcome, 0)]


@pytest.mark.parametrize("stream", [False, True])
async def test_hedge_that_ends_by_the_total_time_limit_has_timeouts(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger, stream: bool
) -> None:
    upstream.enqueue(Reply.silence())
    other.enqueue(Reply.silence())
    line = await line_of(client, ledger, "brief", stream=stream)
    assert answers(line) == [(name, "brief", "upstream_timeout", 0) for name in "ab"]


async def test_hedge_after_a_failed_attempt_has_timeouts_if_the_time_left_is_over(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.error(500, "no"), Reply.silence())
    other.enqueue(Reply.silence())
    line = await line_of(client, ledger, "third")
    assert line.meta["outcome"] == "upstream_timeout"
    late = [(name, "third", "upstream_timeout", 0) for name in "ab"]
    assert answers(line) == [("a", "third", "upstream_error", 500), *late]


async def test_hedge_without_a_first_chunk_in_time_has_timeouts_before_the_next_attempt() -> None:
    stage, state = Stage(hedge_after=0.01), SendState()

    async def called() -> str:
        track(state)
        return str(await stage.call(lambda at: "answer" if len(stage.tried) == 3 else forever()))

    task = asyncio.create_task(called())
    await until(lambda: len(stage.tried) == 2)
    state.late = UpstreamTimeout()  # as the clock of the calls does
    task.cancel()
    assert await task == "answer"
    found = answers_of(state, stage.tried, "ok", prompt=5) or ()
    assert [(answer.provider, answer.code) for answer in found] == [
        ("a", "upstream_timeout"), ("b", "upstream_timeout"), (stage.places[2][0], "ok")
    ]  # fmt: skip


async def test_second_attempt_that_loses_has_no_status_of_the_first(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    def later(reply: Reply) -> Reply:
        reply.delay = 0.3
        return reply

    upstream.tamper = later
    other.enqueue(Reply.silence())
    line = await line_of(client, ledger, "raced")
    assert answers(line) == [("b", "raced", "cancelled", 0), ("a", "raced", "ok", 200)]


@pytest.mark.holds("routing.md#what-each-attempt-answered-1")
async def test_attempt_that_is_sent_again_in_another_form_has_its_whole_time(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(refused_limit(delay=0.3), Reply.error(404, "no such model"))
    line = await line_of(client, ledger, "alone")
    [answer] = line.json_form()["answers"]
    assert len(upstream.seen) == 2
    assert (answer["status"], answer["ms"] >= 295) == (404, True)


async def test_status_of_a_refused_form_is_not_that_of_the_next_one(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    refused = refused_limit(delay=0.2)
    refused.headers["connection"] = "close"
    upstream.enqueue(refused)
    asking = asyncio.create_task(line_of(client, ledger, "alone"))
    await upstream.wait_started()
    assert upstream._runner is not None
    [site] = upstream._runner.sites
    await site.stop()  # the second request cannot connect
    line = await asking
    assert len(upstream.seen) == 1
    assert (line.meta["outcome"], answers(line)) == ("upstream_error", [])  # an entry would have the status 400
