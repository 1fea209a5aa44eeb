"""An unmodified OpenAI client, the gateway, and Anthropic's dialect behind it: what callers see, and what they pay."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import openai
import pytest
from tornado.ioloop import IOLoop

from gateway.accounts.accounts import Accounts
from gateway.accounts.key_record import CreatedKey
from gateway.amounts import NANO
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.http_server.server import HTTPServer
from gateway.testing import FakeUpstream, Reply
from tests.polling import until
from tests.providers.messages_dialect import document, frames, messages_chat, streamed

HI: Any = [{"role": "user", "content": "hi"}]
TIDE: Any = {"type": "function", "function": {"name": "tide", "parameters": {"type": "object", "properties": {}}}}

pytestmark = pytest.mark.slow  # an SDK takes a second to import


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Anthropic's server."""
    server = FakeUpstream(messages_chat)
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def settings(tmp_path: Path, upstream: FakeUpstream) -> Settings:
    """A model there, and one with two places to be."""
    price = {
        "input": 3,
        "cached_input": Decimal("0.3"),
        "cache_write": Decimal("3.75"),
        "cache_write_long": 6,
        "output": 15,
    }
    twice = [{"provider": "claude", "model": name} for name in ("claude-sonnet-5", "claude-opus-5")]
    return parse(
        {
            "store": {"data_dir": str(tmp_path)},
            "providers": {"claude": {"plugin": "anthropic", "base_url": upstream.url, "api_key": "sk-ant-canary-01"}},
            "groups": {"default": {}},
            "models": {
                "claude": {"provider": "claude", "model": "claude-sonnet-5", "price": price},
                "twice": {"targets": twice, "price": price},
            },
        },
        demo=True,
    )


@asynccontextmanager
async def caller(base_url: str, key: CreatedKey) -> AsyncIterator[openai.AsyncOpenAI]:
    address = f"{base_url.replace('localhost', '127.0.0.1')}/v1"
    async with openai.AsyncOpenAI(base_url=address, api_key=key.text, max_retries=0) as client:
        yield client


async def test_openai_client_runs_a_tool_loop(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    upstream.enqueue(streamed(*frames("tools")))
    async with caller(base_url, api_key) as client:
        async with client.chat.completions.stream(model="claude", messages=HI, tools=[TIDE]) as stream:
            first = (await stream.get_final_completion()).choices[0]
        assert first.finish_reason == "tool_calls" and first.message.tool_calls
        results = [{"role": "tool", "tool_call_id": call.id, "content": "6:40"} for call in first.message.tool_calls]
        history = [*HI, first.message.model_dump(exclude_none=True), *results, {"role": "user", "content": "so when"}]
        answer = await client.chat.completions.create(model="claude", messages=history, tools=[TIDE])
    assert answer.choices[0].message.content == "so when "
    said, returned = upstream.seen[1].json["messages"][1:]
    assert said["content"] == [
        {name: value for name, value in block.items() if name not in {"caller", "citations"}}
        for block in document("tools")["content"]
    ]
    assert [block["tool_use_id"] for block in returned["content"][:3]] == [
        block["id"] for block in document("tools")["content"][1:]
    ]


async def test_thinking_passes_through_an_openai_client_and_back(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    upstream.enqueue(Reply.json(document("thinking")))
    async with caller(base_url, api_key) as client:
        answer = await client.chat.completions.create(model="claude", messages=HI, reasoning_effort="high")
        message = answer.choices[0].message
        assert message.model_extra and message.model_extra["reasoning_content"].startswith("Two numbers.")
        assert answer.usage and answer.usage.completion_tokens_details
        assert answer.usage.completion_tokens_details.reasoning_tokens == 52
        history: Any = [*HI, message.model_dump(exclude_none=True), {"role": "user", "content": "again"}]
        await client.chat.completions.create(model="claude", messages=history)
    assert upstream.seen[0].json["output_config"] == {"effort": "high"}
    assert upstream.seen[1].json["messages"][1]["content"][:2] == document("thinking")["content"][:2]


@pytest.mark.parametrize("stream", [False, True])
async def test_cache_reads_and_writes_are_billed_at_their_own_prices(
    http_server: HTTPServer,
    base_url: str,
    api_key: CreatedKey,
    upstream: FakeUpstream,
    accounts: Accounts,
    stream: bool,
) -> None:
    before = await accounts.show(api_key.account)
    long: Any = [{"role": "user", "content": "hi " * 7000}]
    upstream.enqueue(streamed(*frames("cache")) if stream else Reply.json(document("cache")))
    async with caller(base_url, api_key) as client:
        if stream:
            async for _ in await client.chat.completions.create(model="claude", messages=long, stream=True):
                pass
        else:
            await client.chat.completions.create(model="claude", messages=long)
    cost = (21 * 3 + 18890 * 0.3 + 456 * 3.75 + 100 * 6 + 3 * 15) * NANO / 1_000_000

    async def is_charged() -> bool:
        after = await accounts.show(api_key.account)
        return bool(before.balance - after.balance == round(cost))

    assert await until(is_charged)


async def test_overload_inside_a_stream_is_retried_on_the_next_target(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    upstream.enqueue(streamed(*frames("overloaded")))
    async with caller(base_url, api_key) as client:
        chunks = [c async for c in await client.chat.completions.create(model="twice", messages=HI, stream=True)]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == "hi "
    assert {seen.json["model"] for seen in upstream.seen} == {"claude-sonnet-5", "claude-opus-5"}


async def test_error_and_cut_inside_a_stream_reach_the_caller_as_errors(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    for reply in (streamed(*frames("broken")), streamed(*frames("text")[:-1])):
        upstream.enqueue(reply)
        async with caller(base_url, api_key) as client:
            text = ""
            with pytest.raises(openai.APIError):
                async for chunk in await client.chat.completions.create(model="claude", messages=HI, stream=True):
                    text += chunk.choices[0].delta.content or ""
        assert text.startswith("Four")


async def test_unsupported_fields_are_refused_or_dropped_by_their_class(
    http_server: HTTPServer, base_url: str, api_key: CreatedKey, upstream: FakeUpstream
) -> None:
    sound: Any = [
        {"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}]}
    ]
    async with caller(base_url, api_key) as client:
        for refused in ({"n": 2}, {"logprobs": True}, {"logit_bias": {"1": 1}}, {"messages": sound}):
            fields: Any = {"model": "claude", "messages": HI, **refused}
            with pytest.raises(openai.BadRequestError) as caught:
                await client.chat.completions.create(**fields)
            assert caught.value.param == next(iter(refused))
        assert upstream.seen == []
        raw = await client.chat.completions.with_raw_response.create(
            model="claude", messages=HI, seed=1, presence_penalty=1, verbosity="low", stop="x", extra_body={"top_k": 1}
        )
    assert set(raw.headers["x-gateway-dropped-params"].split(",")) == {"seed", "presence_penalty", "top_k"}
    assert upstream.seen[0].json["stop_sequences"] == ["x"] and "verbosity" not in upstream.seen[0].json
