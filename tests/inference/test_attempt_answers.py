"""The ledger line of a call has what each of its attempts answered, and an ordinary call has no such field."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger, LedgerLine
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from gateway.testing.ports import free_ports
from tests.api.conftest import Client
from tests.inference.test_continuation import cut, rest
from tests.ledger_lines import last_line
from tests.polling import until

PRICE = {"price": {"input": 1, "output": 2}}
KEY = "sk-upstream-canary-0123456789"
HOSTILE = f"<script>alert(1)</script> {KEY} at https://internal.example.com/v1 said no"
OVERFLOW = Reply.error(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded")

Answer = tuple[str, str, str, int]  # provider, model, code, status


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream, other: FakeUpstream) -> Settings:
    """Providers a and b, and one where nothing listens; models that are retried, raced, continued or not."""
    [nowhere] = free_ports(1)
    urls = {"a": upstream.base_url, "b": other.base_url, "gone": f"http://127.0.0.1:{nowhere}/v1"}
    providers = {name: {"plugin": "openai", "base_url": url, "api_key": KEY} for name, url in urls.items()}
    targets = [{"provider": name, "model": f"upstream-{name}"} for name in ("a", "gone", "b")]
    pair = {"targets": targets[::2], "strategy": "in_order", **PRICE}
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": providers,
            "models": {
                "three": {"targets": targets, "strategy": "in_order", **PRICE},
                "pair": pair,
                "going": {**pair, "continue_cut": True},
                "raced": {**pair, "hedge_after": 0.1},
                "impatient": {**pair, "first_byte_timeout": 0.2},
                "alone": {"provider": "a", "retries": 0, **PRICE},
                "small": {"provider": "a", "context_window": 10_000, "fallbacks": ["roomy"], **PRICE},
                "roomy": {"provider": "b", "context_window": 1_000_000, **PRICE},
            },
        },
        demo=True,
    )


def answers(line: LedgerLine) -> list[Answer]:
    found = line.json_form().get("answers", [])
    assert all(0 <= answer["ms"] <= line.meta["duration_ms"] for answer in found)
    return [(answer["provider"], answer["model"], answer["code"], answer["status"] or 0) for answer in found]


async def line_of(client: Client, ledger: Ledger, model: str, *, stream: bool = False) -> LedgerLine:
    response, *_ = await (client.stream(model=model) if stream else client.chat(model=model))
    return await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))


@pytest.mark.holds("routing.md#what-each-attempt-answered-1")
@pytest.mark.parametrize("stream", [False, True])
async def test_each_failed_attempt_has_its_code_and_status_and_the_last_one_ok(
    client: Client, upstream: FakeUpstream, ledger: Ledger, stream: bool
) -> None:
    upstream.enqueue(Reply.error(429, HOSTILE, headers={"retry-after": "9"}))
    line = await line_of(client, ledger, "three", stream=stream)
    assert line.meta["attempts"] == 3
    assert answers(line) == [
        ("a", "three", "slow_down", 429), ("gone", "three", "upstream_error", 0), ("b", "three", "ok", 200)
    ]  # fmt: skip
    assert "canary" not in line.meta_text and "script" not in line.meta_text and "internal" not in line.meta_text


@pytest.mark.holds("routing.md#what-each-attempt-answered-1")
@pytest.mark.parametrize("stream", [False, True])
async def test_call_whose_first_attempt_serves_has_no_such_field(
    client: Client, gateway: Gateway, ledger: Ledger, monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    records = []
    monkeypatch.setattr(gateway.metrics, "settled", lambda record, **_: records.append(record))
    for model in ("three", "raced", "going"):
        line = await line_of(client, ledger, model, stream=stream)
        assert (line.meta["outcome"], "answers" in line.meta) == ("ok", False)
    assert [record.answers for record in records] == [None] * 3


@pytest.mark.holds("routing.md#what-each-attempt-answered-1")
async def test_single_failed_attempt_is_kept_if_it_says_more_than_the_outcome(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.error(404, "no such model"))
    assert answers(await line_of(client, ledger, "alone")) == [("a", "alone", "upstream_error", 404)]
    upstream.enqueue(Reply.hang_up())
    line = await line_of(client, ledger, "alone")
    assert (line.meta["outcome"], "answers" in line.meta) == ("upstream_error", False)


async def test_call_without_an_answer_has_the_failures_of_all_attempts(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.error(401, HOSTILE))
    other.enqueue(Reply.error(400, HOSTILE))
    line = await line_of(client, ledger, "pair")
    assert (line.amount, line.meta["outcome"]) == (0, "invalid_value")
    assert answers(line) == [("a", "pair", "upstream_auth_error", 401), ("b", "pair", "invalid_value", 400)]


async def test_attempts_that_failed_alike_have_an_entry_each(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.hang_up())
    other.enqueue(Reply.hang_up(), Reply.hang_up())
    line = await line_of(client, ledger, "pair")
    assert line.meta["outcome"] == "upstream_error"
    assert answers(line) == [(name, "pair", "upstream_error", 0) for name in ("a", "b", "b")]


async def test_fallback_with_a_larger_window_is_named_beside_the_refused_model(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(OVERFLOW)
    line = await line_of(client, ledger, "small")
    assert answers(line) == [("a", "small", "context_length_exceeded", 400), ("b", "roomy", "ok", 200)]


async def test_silent_attempt_has_the_code_of_a_timeout_and_its_time(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.silence())
    line = await line_of(client, ledger, "impatient", stream=True)
    assert answers(line) == [("a", "impatient", "upstream_timeout", 0), ("b", "impatient", "ok", 200)]
    assert line.meta["answers"][0]["ms"] >= 190


@pytest.mark.holds("routing.md#what-each-attempt-answered-1")
@pytest.mark.parametrize("stream", [False, True])
async def test_loser_of_a_hedge_is_cancelled_and_the_winner_has_its_own_time(
    client: Client, upstream: FakeUpstream, ledger: Ledger, stream: bool
) -> None:
    upstream.enqueue(Reply.silence())
    line = await line_of(client, ledger, "raced", stream=stream)
    assert answers(line) == [("a", "raced", "cancelled", 0), ("b", "raced", "ok", 200)]
    first, second = (answer["ms"] for answer in line.json_form()["answers"])
    assert first >= 95 and second <= line.meta["duration_ms"] - 95


async def test_first_attempt_of_a_hedge_may_serve_after_the_second_failed(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.tamper = lambda reply: _later(reply, 0.4)
    other.enqueue(Reply.error(500, "no"))
    line = await line_of(client, ledger, "raced")
    assert answers(line) == [("b", "raced", "upstream_error", 500), ("a", "raced", "ok", 200)]
    failed, served = (answer["ms"] for answer in line.json_form()["answers"])
    assert failed < 250 < served


async def test_both_attempts_of_a_hedge_may_fail(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(_later(Reply.error(429, "slow down", headers={"retry-after": "9"}), 0.4))
    other.enqueue(Reply.error(400, "odd"))
    line = await line_of(client, ledger, "raced")
    assert answers(line) == [("b", "raced", "invalid_value", 400), ("a", "raced", "slow_down", 429)]
    assert line.meta["attempts"] == 2


async def test_continued_stream_has_the_cut_and_the_target_that_went_on(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}, {"content": "a time"}))
    other.enqueue(rest(" there was an end."))
    line = await line_of(client, ledger, "going", stream=True)
    assert answers(line) == [("a", "going", "upstream_stream_truncated", 200), ("b", "going", "ok", 200)]


async def test_stream_that_could_not_be_continued_has_both_failures(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}, {"content": "a time"}))
    other.enqueue(Reply.error(400, "odd"), Reply.error(400, "odd"))
    line = await line_of(client, ledger, "going", stream=True)
    assert answers(line) == [("a", "going", "upstream_stream_truncated", 200), ("b", "going", "invalid_value", 400)]
    assert (line.meta["provider"], line.meta["outcome"]) == ("a", "upstream_stream_truncated")


async def test_stream_of_the_second_attempt_that_is_cut_has_the_outcome_of_the_call(
    client: Client, upstream: FakeUpstream, other: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply.error(500, "no"))
    other.enqueue(cut({"content": "Once upon "}))
    line = await line_of(client, ledger, "pair", stream=True)
    assert answers(line) == [("a", "pair", "upstream_error", 500), ("b", "pair", "upstream_stream_truncated", 200)]


@pytest.mark.holds("api.md#get-v1-usage-1")
async def test_receipt_has_codes_and_times_and_no_names(client: Client, upstream: FakeUpstream, ledger: Ledger) -> None:
    upstream.enqueue(Reply.error(401, HOSTILE))
    line = await line_of(client, ledger, "pair")
    async with client.request("GET", f"/v1/usage/{line.request_id}", headers=client.headers) as response:
        receipt: dict[str, Any] = await response.json()
    times = [answer["ms"] for answer in line.json_form()["answers"]]
    assert receipt["answers"] == [  # the status would say what is wrong with the operator's credential
        {"code": "upstream_auth_error", "status": None, "ms": times[0]}, {"code": "ok", "status": 200, "ms": times[1]}
    ]  # fmt: skip
    assert "answers" not in (await line_of(client, ledger, "pair")).meta


def _later(reply: Reply, seconds: float) -> Reply:
    reply.delay = seconds
    return reply
