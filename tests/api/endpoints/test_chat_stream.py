"""Streams: the frames a client sees, honest ends, disconnects, and what each of them costs."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.ledger import Ledger
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client
from tests.ledger_lines import last_line
from tests.polling import at_once, until


def chunk(delta: dict[str, Any] | None = None, finish: str | None = None, **fields: Any) -> dict[str, Any]:
    """An upstream's chunk."""
    return {
        "id": "up",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "upstream-m1",
        "choices": [{"index": 0, "delta": delta or {}, "finish_reason": finish}],
        **fields,
    }


USAGE = {"prompt_tokens": 17, "completion_tokens": 2, "total_tokens": 19}
HELLO = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": "Hel"}),
    chunk({"content": "lo"}),
    chunk(finish="stop"),
    {"id": "up", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [], "usage": USAGE},
]


def documents(text: str) -> list[dict[str, Any]]:
    """The JSON frames of a stream."""
    frames = [frame.removeprefix("data: ") for frame in text.split("\n\n") if frame.startswith("data: ")]
    return [json.loads(frame) for frame in frames if frame != "[DONE]"]


def text_of(text: str) -> str:
    """The answer a stream spells."""
    return "".join(
        choice["delta"].get("content") or "" for document in documents(text) for choice in document.get("choices", [])
    )


async def test_stream_has_role_text_finish_and_done_in_order(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO))
    response, text, failure = await client.stream()
    assert failure is None
    assert response.headers["Content-Type"] == "text/event-stream; charset=utf-8"
    assert response.headers["Cache-Control"] == "no-cache, no-transform"
    assert response.headers["X-Accel-Buffering"] == "no"
    assert text.endswith("data: [DONE]\n\n")
    frames = documents(text)
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert [frame["choices"][0]["finish_reason"] for frame in frames] == [None, None, None, "stop"]
    assert all("logprobs" in frame["choices"][0] for frame in frames)
    assert len({(frame["id"], frame["created"], frame["model"]) for frame in frames}) == 1
    assert frames[0]["model"] == "m1"
    assert text_of(text) == "Hello"


async def test_usage_is_always_requested_upstream_and_sent_only_if_the_caller_requests_it(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.stream(HELLO), Reply.stream(HELLO))
    _, text, _ = await client.stream()
    assert upstream.seen[0].json["stream_options"]["include_usage"] is True
    assert all("usage" not in frame for frame in documents(text))
    _, text, _ = await client.stream(stream_options={"include_usage": True})
    frames = documents(text)
    assert all(frame["usage"] is None for frame in frames[:-1])
    assert frames[-1]["choices"] == []
    assert frames[-1]["usage"]["total_tokens"] == 19


@pytest.mark.holds("README.md#model-gateway-2")
async def test_cut_upstream_ends_with_an_error_frame_and_without_done(
    client: Client, upstream: FakeUpstream, ledger: Ledger
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=_frames(HELLO[:3]), end="cut"))
    response, text, failure = await client.stream()
    assert response.status == 200
    assert documents(text)[-1]["error"]["code"] == "upstream_stream_truncated"
    assert "[DONE]" not in text
    assert failure is not None  # the chunked body is not terminated: no client can take it for whole
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["estimated"]
    assert line.meta["usage"]["out_text"] == 2  # "Hello", never the error's text


@pytest.mark.holds("README.md#model-gateway-2")
async def test_stream_end_without_a_finish_is_a_truncation(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream(HELLO[:3], done=False))
    _, text, _ = await client.stream()
    assert documents(text)[-1]["error"]["code"] == "upstream_stream_truncated"
    assert "[DONE]" not in text


async def test_error_frame_of_the_upstream_becomes_our_error_frame(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream([*HELLO[:3], {"error": {"message": "boom sk-upstream-canary-0123456789"}}]))
    _, text, _ = await client.stream()
    error = documents(text)[-1]["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "canary" not in text
    assert "[DONE]" not in text


async def test_failure_before_the_first_frame_keeps_its_status(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    upstream.enqueue(Reply.error(429, "slow", headers={"retry-after": "7"}))
    response, text, _ = await client.stream()
    assert response.status == 429
    assert json.loads(text)["error"]["code"] == "slow_down"
    assert response.headers["Retry-After"] == "7"
    account = await until(lambda: _idle(accounts))
    assert account.balance == 10 * NANO


async def test_stream_fails_over_to_the_next_target_without_a_visible_error(
    client: Client, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.error(503, "no"), Reply.stream(HELLO))
    response, text, _ = await client.stream(model="two")
    assert response.status == 200
    assert text_of(text) == "Hello"
    assert len(upstream.seen) == 2


@pytest.mark.holds("prices.md#leaving-early-3")
async def test_client_disconnect_cancels_upstream_and_bills_what_was_delivered(
    client: Client, upstream: FakeUpstream, ledger: Ledger, accounts: Accounts
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=_frames(HELLO[:3]), end="silence"))
    document = {"model": "m1", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
    request_id = ""
    async with client.request("POST", "/v1/chat/completions", json=document) as response:
        request_id = response.headers["x-request-id"]
        received = b""
        while b'"lo"' not in received:
            received += await response.content.readany()
        async with at_once():
            response.close()
            await upstream.wait_ended()
    line = await until(lambda: last_line(ledger, "acme", request_id))
    assert line.meta["outcome"] == "client_closed"
    assert line.meta["usage"]["out_text"] == 2
    assert (await accounts.show("acme")).held == 0


async def test_comments_are_sent_during_silence_after_the_headers(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    gateway.keep_alive.commit_after = gateway.keep_alive.comment_after = 0.1
    late = Reply.stream(HELLO)
    late.delay = 1.5
    upstream.enqueue(late)
    _, text, failure = await client.stream()
    assert failure is None
    assert text.startswith(": keep-alive\n\n")
    assert text_of(text) == "Hello"


async def test_failure_after_committed_silence_is_an_error_frame(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    gateway.keep_alive.commit_after = 0.1
    upstream.enqueue(Reply(status=500, body=b"{}", delay=1.5))
    response, text, _ = await client.stream()
    assert response.status == 200
    assert documents(text)[-1]["error"]["code"] == "upstream_error"
    assert "[DONE]" not in text


async def test_tool_calls_are_numbered_from_zero_and_named_once(client: Client, upstream: FakeUpstream) -> None:
    def fragment(**call: Any) -> dict[str, Any]:
        return chunk({"tool_calls": [call]})

    upstream.enqueue(
        Reply.stream(
            [
                fragment(index=1, id="call_a", type="function", function={"name": "tide", "arguments": ""}),
                fragment(index=1, id="call_a", function={"name": "tide", "arguments": '{"port":'}),
                fragment(index=1, function={"arguments": '"Brest"}'}),
                fragment(index=2, id="call_b", type="function", function={"name": "moon", "arguments": "{}"}),
                chunk(finish="stop"),
            ]
        )
    )
    _, text, _ = await client.stream()
    frames = documents(text)
    assert frames[0]["choices"][0]["delta"] == {"role": "assistant", "content": None, "refusal": None}
    calls = [call for frame in frames for call in frame["choices"][0]["delta"].get("tool_calls", [])]
    assert [call["index"] for call in calls] == [0, 0, 0, 1]
    assert [call["id"] for call in calls if "id" in call] == ["call_a", "call_b"]
    assert [call["function"]["name"] for call in calls if "name" in call["function"]] == ["tide", "moon"]
    assert "".join(call["function"]["arguments"] for call in calls[:3]) == '{"port":"Brest"}'
    assert frames[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_reasoning_text_is_separate_from_the_content(client: Client, upstream: FakeUpstream) -> None:
    upstream.enqueue(Reply.stream([chunk({"reasoning": "hm"}), chunk({"content": "Four"}), chunk(finish="stop")]))
    _, text, _ = await client.stream()
    deltas = [frame["choices"][0]["delta"] for frame in documents(text)]
    assert "hm" in [delta.get("reasoning_content") for delta in deltas]
    assert text_of(text) == "Four"


async def test_choices_start_in_order_for_any_upstream_order(client: Client, upstream: FakeUpstream) -> None:
    def part(index: int, delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
        return {**chunk(), "choices": [{"index": index, "delta": delta, "finish_reason": finish}]}

    upstream.enqueue(
        Reply.stream([part(1, {"content": "b"}), part(0, {"content": "a"}), part(1, {}, "stop"), part(0, {}, "stop")])
    )
    _, text, _ = await client.stream(n=2)
    first_seen: list[int] = []
    for frame in documents(text):
        index = frame["choices"][0]["index"]
        if index not in first_seen:
            first_seen.append(index)
    assert first_seen == [0, 1]
    assert text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [True, False])
async def test_revoked_key_fails_the_very_next_request(
    client: Client, upstream: FakeUpstream, keys: Any, api_key: Any, stream: bool
) -> None:
    response, _ = await client.chat()
    assert response.status == 200
    await keys.revoke(api_key.id)
    response, answer = await client.chat(stream=stream)
    assert response.status == 401
    assert answer["error"]["message"] == "Missing or invalid API key"
    assert len(upstream.seen) == 1


def _frames(items: list[dict[str, Any]]) -> list[bytes]:
    return [b"data: " + json.dumps(item).encode() + b"\n\n" for item in items]


async def _idle(accounts: Accounts) -> Any:
    account = await accounts.show("acme")
    return account if account.held == 0 else None


async def test_running_stream_of_a_revoked_key_is_cut_within_a_second_and_billed(
    client: Client, upstream: FakeUpstream, keys: Any, api_key: Any, ledger: Ledger
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=_frames(HELLO[:3]), end="silence"))
    task = asyncio.create_task(client.stream())
    await until(lambda: upstream.seen and upstream.seen[0].frames == 3)
    async with at_once(within=1.0):
        await keys.revoke(api_key.id)
        response, text, _ = await task
    assert documents(text)[-1]["error"]["code"] == "invalid_api_key"
    assert "[DONE]" not in text
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["usage"]["out_text"] == 2
    assert (await upstream.wait_ended()).outcome == "left"


async def test_lease_renewal_stores_the_cost_of_a_stream(
    client: Client, upstream: FakeUpstream, gateway: Gateway
) -> None:
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=_frames(HELLO[:3]), end="silence"))
    task = asyncio.create_task(client.stream())
    await until(lambda: upstream.seen and upstream.seen[0].frames == 3)

    async def used() -> int:
        await gateway.active_calls.renew_leases()
        return next((call.hold.used for call in gateway.active_calls._calls.values()), 0)

    assert await until(used) > 0
    task.cancel()


@pytest.mark.holds("prices.md#what-is-held-2")
async def test_hold_of_a_long_stream_is_extended_while_the_balance_allows(
    client: Client, upstream: FakeUpstream, accounts: Accounts
) -> None:
    words = [chunk({"content": "word " * 400}) for _ in range(30)]  # 15,000 tokens, 1,024 of them reserved
    upstream.enqueue(Reply.stream([*words, chunk(finish="stop")]))
    _, text, failure = await client.stream()
    assert failure is None
    assert text.endswith("data: [DONE]\n\n")
    account = await until(lambda: _idle(accounts))
    assert account.balance < 10 * NANO - 29 * 1000 * NANO // 1_000_000


@pytest.mark.holds("prices.md#what-is-held-2")
async def test_stream_is_cut_at_most_one_chunk_after_the_balance_is_used_up(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Any
) -> None:
    await accounts.create("small", balance=NANO // 200)  # 0.005: 2,500 tokens of output
    key = await keys.create("small", name="k")
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    words = [chunk({"content": "word " * 80}) for _ in range(100)]  # 100 tokens each
    upstream.enqueue(Reply.stream([*words, chunk(finish="stop")]))
    _, text, _ = await client.stream()
    error = documents(text)[-1]["error"]
    assert error["type"] == "insufficient_quota"
    assert "[DONE]" not in text

    async def settled() -> Any:
        account = await accounts.show("small")
        return account if account.held == 0 else None

    account = await until(settled)
    assert -100 * 2 * NANO // 1_000_000 <= account.balance < NANO // 1000


async def test_stream_within_the_callers_own_limit_never_extends_its_hold(
    client: Client, upstream: FakeUpstream, accounts: Accounts, keys: Any
) -> None:
    await accounts.create("exact", balance=NANO // 100)
    key = await keys.create("exact", name="k")
    client.headers = {**client.headers, "Authorization": f"Bearer {key.text}"}
    words = [chunk({"content": "word " * 80}) for _ in range(40)]
    usage = {"prompt_tokens": 10, "completion_tokens": 4000, "total_tokens": 4010}
    upstream.enqueue(Reply.stream([*words, chunk(finish="stop"), {**chunk(), "choices": [], "usage": usage}]))
    _, text, failure = await client.stream(max_tokens=4000)
    assert failure is None
    assert text.endswith("data: [DONE]\n\n")
