"""A cut stream of text goes on at another target, once, where its text is proved to fit."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec import structs

from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream
from gateway.testing.fake_upstream import Reply
from tests.api.conftest import Client
from tests.inference.two_targets import IN_ORDER, settings_with
from tests.polling import until


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """`going` may be continued; `cut` may not."""
    models = {"going": {**IN_ORDER, "continue_cut": True}, "cut": {**IN_ORDER, "continue_cut": "off"}}
    return settings_with(models, tmp_path, upstream)


def chunk(delta: dict[str, Any], *, index: int = 0, finish: str | None = None) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def cut(*deltas: dict[str, Any]) -> Reply:
    """A stream that breaks off."""
    reply = Reply.stream([chunk({"role": "assistant", "content": ""}), *map(chunk, deltas)], done=False)
    reply.end = "cut"
    return reply


def rest(text: str) -> Reply:
    usage = {"choices": [], "usage": {"prompt_tokens": 900, "completion_tokens": 3, "total_tokens": 903}}
    return Reply.stream([chunk({"role": "assistant", "content": text}), chunk({}, finish="stop"), usage])


def said(text: str) -> str:
    """What a client makes of the frames."""
    frames = [msgspec.json.decode(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    return "".join(c["delta"].get("content") or "" for frame in frames for c in frame.get("choices", []))


async def test_a_cut_text_is_continued_by_the_other_target_as_one_stream(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(cut({"content": "Once upon "}, {"content": "a time"}), rest(" there was an end."))
    response, text, failure = await client.stream(
        model="going", max_tokens=50, stream_options={"include_usage": True}, seed=7
    )
    assert (response.status, failure) == (200, None)
    assert said(text) == "Once upon a time there was an end."
    assert text.endswith("data: [DONE]\n\n")
    assert text.count('"role":"assistant"') == 1
    second = upstream.seen[1].json
    assert second["model"] == "second"
    assert second["seed"] == 7
    assert second["messages"][0] == {"role": "user", "content": "Hi"}
    assert second["messages"][1:] == [{"role": "assistant", "content": "Once upon a time"}]
    assert second["max_tokens"] == 46
    await ledger.drain()
    [line] = [line.json_form() async for line in ledger.lines("acme") if line.kind == "use"]
    assert (line["attempts"], line["estimated"]) == (2, True)
    usage = [msgspec.json.decode(row[6:])["usage"] for row in text.splitlines() if '"choices":[]' in row]
    assert usage[0]["completion_tokens"] == 9
    assert usage[0]["prompt_tokens"] < 50, "the second target's prompt is not the caller's"


async def test_without_the_setting_a_cut_stream_ends_in_an_error(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(cut({"content": "Once upon "}), rest("never"))
    _, text, _ = await client.stream(model="cut")
    assert "upstream_stream_truncated" in text
    assert "[DONE]" not in text
    assert len(upstream.seen) == 1


CALL = {"tool_calls": [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{"}}]}


@pytest.mark.parametrize(
    ("deltas", "fields"),
    [
        ([{"content": "Let me see"}, CALL], {}),
        ([{"content": "x"}], {"n": 2}),
        ([{"content": "x"}], {"logprobs": True}),
        ([], {}),
    ],
    ids=["tool call", "two choices", "logprobs", "nothing said yet"],
)
async def test_streams_with_more_than_plain_text_are_not_continued(
    client: Client, upstream: FakeUpstream, deltas: list[dict[str, Any]], fields: dict[str, Any]
) -> None:
    upstream.enqueue(cut(*deltas), rest("never"))
    _, text, _ = await client.stream(model="going", **fields)
    assert "upstream_stream_truncated" in text
    assert len(upstream.seen) == 1


async def test_continuation_happens_once_and_a_second_cut_is_an_error(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(cut({"content": "Once "}), cut({"content": "twice "}), rest("never"))
    _, text, _ = await client.stream(model="going")
    assert said(text) == "Once twice "
    assert "upstream_stream_truncated" in text
    assert "[DONE]" not in text


async def test_partial_usage_before_a_cut_is_not_charged_as_the_whole_usage(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    """Some upstreams count with every chunk; what the first one counted up to its cut covers half an answer."""
    so_far = {"prompt_tokens": 900, "completion_tokens": 1, "total_tokens": 901}
    first = Reply.stream([{**chunk({"role": "assistant", "content": "Once upon "}), "usage": so_far}], done=False)
    first.end = "cut"
    upstream.enqueue(first, rest("a time there was an end."))
    _, text, _ = await client.stream(model="going", stream_options={"include_usage": True})
    assert said(text) == "Once upon a time there was an end."
    [usage] = [msgspec.json.decode(row[6:])["usage"] for row in text.splitlines() if '"choices":[]' in row]
    assert usage["prompt_tokens"] < 50
    assert usage["completion_tokens"] == 9
    await ledger.drain()
    [line] = [line async for line in ledger.lines("acme") if line.kind == "use"]
    assert -line.amount == usage["prompt_tokens"] * 1000 + usage["completion_tokens"] * 2000


async def test_failure_of_a_hedge_counts_for_its_target_and_leaves_nothing_in_flight(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    upstream.enqueue(cut({"content": "Once "}), cut({"content": "twice "}))
    await client.stream(model="going")
    rows = {str(circuit.key): circuit.count.row for circuit in gateway.health.all() if circuit.key.model}
    assert rows == {"one#1/first (chat)": 1, "two#1/second (chat)": 1}, "each failed once since its first chunk"
    assert {circuit.in_flight for circuit in gateway.health.all()} == {0}


async def test_error_of_a_cut_stream_is_sent_if_no_target_continues_it(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(cut({"content": "Once "}), *[Reply.error(400, "messages must alternate")] * 3)
    _, text, _ = await client.stream(model="going")
    assert "upstream_stream_truncated" in text
    assert "alternate" not in text


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_all_attempts_of_a_call_are_no_more_than_its_model_allows(
    client: Client, upstream: FakeUpstream, gateway: Gateway, settings: Settings, retries: int
) -> None:
    going = structs.replace(settings.models["going"], retries=retries)
    await gateway.reload(structs.replace(settings, models={**settings.models, "going": going}))
    upstream.enqueue(cut({"content": "Once "}), *[Reply.error(500, "no")] * 5)
    await client.stream(model="going")
    assert len(upstream.seen) == 1 + retries


async def test_a_rejection_inside_a_stream_is_not_continued(client: Client, upstream: FakeUpstream) -> None:
    refused = {"error": {"message": "Odd request", "type": "invalid_request_error", "code": "bad_request"}}
    upstream.enqueue(Reply.stream([chunk({"content": "Once "}), refused], done=False), rest("never"))
    _, text, _ = await client.stream(model="going")
    assert "invalid_value" in text
    assert len(upstream.seen) == 1


async def test_a_stream_whose_first_chunk_cannot_be_shown_is_closed(
    gateway: Gateway, client: Client, upstream: FakeUpstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[str] = []

    async def nonsense(*_: object) -> AsyncIterator[Any]:
        try:
            yield object()
            yield object()
        finally:
            closed.append("closed")

    monkeypatch.setattr(type(gateway.providers["one"][0]), "stream_chat", nonsense)
    response, text, _ = await client.stream(model="going")
    assert response.status == 502, text
    assert closed == ["closed"]
    assert {circuit.in_flight for circuit in gateway.health.all()} == {0}


async def test_a_client_that_disconnects_at_the_first_chunk_closes_the_upstream(
    gateway: Gateway, client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.stream([chunk({"content": "x" * 200_000}) for _ in range(50)], interval=0.05))
    document = {"model": "going", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    async with client.request("POST", "/v1/chat/completions", json=document) as response:
        assert response.status == 200
        response.close()
    await until(lambda: upstream.seen[0].outcome == "left")
    await until(lambda: {circuit.in_flight for circuit in gateway.health.all()} == {0})
