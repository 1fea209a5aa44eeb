"""What a call costs that failed, was left or was cut: nothing before any content, and then what was delivered."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec import structs

from gateway.accounts.accounts import Accounts
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.ledger import Ledger
from gateway.ledger.inflight_checkpoint import InflightCheckpoint, read_inflight_checkpoint
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from gateway.testing.chat_script import ChatScript
from tests.api.conftest import Client
from tests.clients.scripted import image_event
from tests.ledger_lines import last_line
from tests.polling import until
from tests.providers.messages_dialect import event, streamed

BALANCE = 10 * NANO
TOKEN = NANO // 10_000  # output; a token of the prompt costs a tenth, a cached one a hundredth
PRICE = {"input": 10, "cached_input": 1, "output": 100, "audio_output": 200, "image_output": 300}
LONG = "x" * 4000  # a prompt of a thousand tokens


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream, deaf: str) -> Settings:
    """Chat models on the scriptable upstream and on a deaf one, and one that makes images."""
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {
                "up": {"plugin": "openai", "base_url": upstream.base_url},
                "deaf": {"plugin": "openai", "base_url": deaf},
                "claude": {"plugin": "anthropic", "base_url": upstream.url, "api_key": "sk-ant-canary-01"},
            },
            "groups": {"default": {}},
            "models": {
                "m1": {"provider": "up", "price": PRICE, "retries": 0},
                "again": {"provider": "up", "price": PRICE, "retries": 2},
                "hanging": {"provider": "deaf", "price": PRICE, "retries": 0},
                "claude": {
                    "provider": "claude",
                    "model": "claude-sonnet-5",
                    "price": {"input": 3, "cached_input": Decimal("0.3"), "output": 15},
                },
                "painter": {
                    "provider": "up",
                    "endpoints": ["images"],
                    "price": {"per_image": {"*": {"*": 1}}},
                },
                "sketcher": {
                    "provider": "up",
                    "endpoints": ["images"],
                    "price": {"input": 0, "output": 0, "image_output": PRICE["output"]},
                    "max_output_tokens": 1000,
                    "retries": 0,
                },
            },
        },
        demo=True,
    )


class Bill:
    """What the account has paid once nothing is held."""

    def __init__(self, accounts: Accounts, ledger: Ledger) -> None:
        self.accounts, self.ledger = accounts, ledger

    async def paid(self) -> int:
        async def settled() -> Any:
            account = await self.accounts.show("acme")
            return account if account.held == 0 else None

        return BALANCE - int((await until(settled)).balance)

    async def line(self, request_id: str) -> Any:
        """The ledger line of a call."""
        return (await until(lambda: last_line(self.ledger, "acme", request_id))).json_form()


@pytest.fixture
def bill(accounts: Accounts, ledger: Ledger, bearer: dict[str, str]) -> Bill:
    return Bill(accounts, ledger)


@asynccontextmanager
async def reading(client: Client, **fields: Any) -> AsyncIterator[tuple[Any, str]]:
    """A streamed chat that the caller reads, and its request id; the caller leaves at the end of the block."""
    document = {"model": "m1", "messages": [{"role": "user", "content": LONG}], "stream": True, **fields}
    async with client.request("POST", "/v1/chat/completions", json=document) as response:
        yield response, response.headers["x-request-id"]
        response.close()


async def read_until(response: Any, text: bytes) -> None:
    received = b""
    while text not in received:
        received += await response.content.readany()


# Failed calls --------------------------------------------------------------------------------------------------------


async def leave_while(client: Client, gateway: Gateway, model: str, ready: Any) -> None:
    """Ask for a whole answer, and leave once `ready` is true."""
    asking = asyncio.create_task(client.chat(model=model, messages=[{"role": "user", "content": LONG}]))
    await until(ready)
    asking.cancel()
    await until(lambda: not gateway.active_calls._calls)


@pytest.mark.holds("prices.md#leaving-early-8")
async def test_caller_who_leaves_after_the_upstream_refused_with_429_pays_nothing(
    client: Client, gateway: Gateway, upstream: FakeUpstream, bill: Bill
) -> None:
    upstream.enqueue(Reply.error(429, "slow", headers={"retry-after": "4"}))
    refused = gateway.metrics._counters
    await leave_while(client, gateway, "again", lambda: any(name == "gateway_upstream_errors" for name, _ in refused))
    assert await bill.paid() == 0


@pytest.mark.holds("prices.md#leaving-early-8")
async def test_caller_who_leaves_while_the_connect_hangs_pays_nothing(
    client: Client, gateway: Gateway, bill: Bill
) -> None:
    await leave_while(client, gateway, "hanging", lambda: any(c.attempts for c in gateway.active_calls._calls.values()))
    assert await bill.paid() == 0


@pytest.mark.holds("prices.md#leaving-early-8")
async def test_caller_who_leaves_while_the_upstream_works_pays_the_prompt(
    client: Client, gateway: Gateway, upstream: FakeUpstream, bill: Bill
) -> None:
    upstream.enqueue(Reply.silence())
    await leave_while(client, gateway, "m1", lambda: upstream.seen)
    assert 1006 * TOKEN // 10 <= await bill.paid() < 1030 * TOKEN // 10  # the prompt and its frame


@pytest.mark.holds("prices.md#calls-that-fail-or-are-cut-1")
async def test_usage_before_any_content_and_then_a_failure_costs_nothing(
    client: Client, upstream: FakeUpstream, bill: Bill
) -> None:
    upstream.enqueue(ChatScript(early=True, until="nothing", end="cut").stream())
    _, text, failure = await client.stream()
    assert failure is not None and "upstream_stream_truncated" in text
    assert await bill.paid() == 0


@pytest.mark.holds("prices.md#leaving-early-8")
async def test_caller_who_leaves_during_a_call_that_failed_without_content_pays_nothing(
    client: Client, gateway: Gateway, upstream: FakeUpstream, bill: Bill
) -> None:
    upstream.enqueue(Reply.error(400, "no"))
    await client.chat()
    assert await bill.paid() == 0


# Delivered parts -----------------------------------------------------------------------------------------------------


async def read_frames(response: Any, count: int) -> None:
    """Read until `count` frames have arrived; the stream may be cut behind them."""
    received = b""
    while received.count(b"data: ") < count:
        part = await response.content.readany()
        assert part, f"the stream ended after {received!r}"
        received += part


@pytest.mark.holds("prices.md#counts-of-upstreams-7", "prices.md#calls-that-fail-or-are-cut-2", "prices.md#audio-5")
@pytest.mark.parametrize(
    ("script", "output"),
    [
        (ChatScript(text="word " * 40, early=True), 50),
        (ChatScript(text="", audio_seconds=3), 126),  # 21 tokens a second at twice the price of text
        (ChatScript(text="", images=2), 2 * 1290 * 3),
        (ChatScript(text="", custom_input="ls -la | wc"), 3),
    ],
    ids=["text after early usage", "sound", "images", "input of a custom tool"],
)
@pytest.mark.parametrize("end", ["cut", "silence"])
async def test_delivered_part_of_a_cut_stream_is_charged(
    client: Client, upstream: FakeUpstream, bill: Bill, script: ChatScript, output: int, end: Any
) -> None:
    reply = structs.replace(script, until="content", end=end).stream()
    upstream.enqueue(reply)
    async with reading(client, max_tokens=3000) as (response, request_id):
        await read_frames(response, len(reply.frames or ()) - script.early)
    line = await bill.line(request_id)
    usage = line["usage"]
    prompt = usage.get("in_text", 0) * TOKEN // 10
    assert await bill.paid() - prompt == output * TOKEN


@pytest.mark.holds("prices.md#counts-of-upstreams-5")
@pytest.mark.parametrize("stream", [True, False])
async def test_count_of_zero_beside_four_thousand_words_is_replaced_by_our_count(
    client: Client, upstream: FakeUpstream, bill: Bill, stream: bool
) -> None:
    lie = {"prompt_tokens": 8, "completion_tokens": 0, "total_tokens": 8}
    upstream.answer = ChatScript(text="word " * 4000, usage=lie).answer
    if stream:
        response, _, failure = await client.stream(max_tokens=8000)
        assert failure is None
    else:
        response, answer = await client.chat(max_tokens=8000)
        assert answer["usage"]["completion_tokens"] == 5000
        assert response.headers["x-gateway-estimated"] == "true"
    line = await bill.line(response.headers["x-request-id"])
    assert (line["usage"]["out_text"], line["estimated"]) == (5000, True)


@pytest.mark.holds("prices.md#leaving-early-12")
async def test_image_whose_preview_was_delivered_is_charged_when_the_caller_leaves(
    client: Client, upstream: FakeUpstream, bill: Bill
) -> None:
    preview = image_event("partial_image", partial_image_index=0)
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=[preview], end="silence"))
    document = {"model": "painter", "prompt": "a heron", "stream": True, "partial_images": 2}
    async with client.request("POST", "/v1/images/generations", json=document) as response:
        await response.content.readany()
        response.close()
    assert await bill.paid() == NANO


def counts(line: Any) -> dict[str, int]:
    """The counts of a line that are not zero."""
    return {name: count for name, count in line["usage"].items() if count}


# Counts told early ---------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#calls-that-fail-or-are-cut-3")
async def test_previews_of_an_image_stream_that_fails_are_charged_100_tokens_each(
    client: Client, upstream: FakeUpstream, bill: Bill
) -> None:
    previews = [image_event("partial_image", partial_image_index=index) for index in range(2)]
    upstream.enqueue(Reply(headers={"Content-Type": "text/event-stream"}, frames=previews, end="cut"))
    document = {"model": "sketcher", "prompt": "a heron", "stream": True, "partial_images": 3}
    async with client.request("POST", "/v1/images/generations", json=document) as response:
        with suppress(aiohttp.ClientError):
            await response.read()
    line = await bill.line(response.headers["x-request-id"])
    assert line["usage"]["out_image"] == 200
    assert await bill.paid() == 200 * TOKEN


@pytest.mark.holds("prices.md#calls-that-fail-or-are-cut-2")
@pytest.mark.parametrize("continuous", [True, False])
async def test_cached_tokens_told_early_are_charged_as_cached_when_the_caller_stops(
    client: Client, upstream: FakeUpstream, bill: Bill, continuous: bool
) -> None:
    script = ChatScript(text="one two", prompt_tokens=3007, cached_tokens=3000, early=True, continuous=continuous)
    upstream.enqueue(structs.replace(script, until="content", end="silence").stream())
    async with reading(client, messages=[{"role": "user", "content": "x" * 12000}]) as (response, request_id):
        await read_until(response, b"two")
    line = await bill.line(request_id)
    assert counts(line) == {"in_text": 7, "in_cached": 3000, "out_text": 2}
    assert line["estimated"]


@pytest.mark.holds("prices.md#calls-that-fail-or-are-cut-2")
async def test_cached_tokens_of_a_message_start_are_charged_as_cached_when_the_caller_stops(
    client: Client, upstream: FakeUpstream, bill: Bill
) -> None:
    usage = {"input_tokens": 4, "cache_read_input_tokens": 100_000, "output_tokens": 1}
    start = event("message_start", message={"id": "msg_1", "role": "assistant", "content": [], "usage": usage})
    opened = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    word = event("content_block_delta", index=0, delta={"type": "text_delta", "text": "Well, "})
    reply = streamed(start, opened, word)
    reply.end = "silence"
    upstream.enqueue(reply)
    prompt = [{"role": "user", "content": "x" * 400_000}]
    async with reading(client, model="claude", messages=prompt, max_tokens=100) as (response, request_id):
        await read_until(response, b"Well")
    line = await bill.line(request_id)
    assert counts(line) == {"in_text": 4, "in_cached": 100_000, "out_text": 2}
    assert await bill.paid() == 30_000_000 + 4 * 3000 + 2 * 15_000


async def test_stream_of_sound_extends_its_hold(
    client: Client, gateway: Gateway, upstream: FakeUpstream, ledger: Ledger
) -> None:
    """60 seconds are 1,260 tokens; a stream without a limit holds 1,024."""
    upstream.enqueue(ChatScript(text="", audio_seconds=60).stream())
    response, _, failure = await client.stream()
    assert failure is None
    line = await until(lambda: last_line(ledger, "acme", response.headers["x-request-id"]))
    assert line.meta["hold"] > 1024 * TOKEN * 5 // 4


async def test_images_in_the_stream_of_a_killed_worker_are_charged_at_their_price(
    client: Client, upstream: FakeUpstream, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.checkpoint = InflightCheckpoint(tmp_path / "a.board")
    upstream.enqueue(ChatScript(text="a", images=2, until="content", end="silence").stream())
    asking = asyncio.create_task(client.stream(model="m1"))
    cost = 2 * 1290 * 3 * TOKEN

    def charged() -> bool:
        return any(-entry.amount >= cost for entry in read_inflight_checkpoint(tmp_path / "a.board").entries)

    await until(charged)
    [entry] = read_inflight_checkpoint(tmp_path / "a.board").entries
    assert -entry.amount < cost + 30 * TOKEN
    asking.cancel()
