"""Anthropic's side of the wire, for tests: recorded-style fixtures as replies, and a provider that talks to them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from gateway import ChatChunk, ChatCompletion, ChatRequest, Target, Upstream
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import decode_chat_request
from gateway.sse import EventParser
from gateway.testing import FakeUpstream, Reply, Seen, ask
from gateway_providers.anthropic import AnthropicProvider

FIXTURES = Path(__file__).parent / "fixtures" / "anthropic"
BUDGET = "claude-sonnet-4-5"  # takes a thinking budget and a temperature
ADAPTIVE = "claude-sonnet-5"  # takes an effort, refuses a temperature


def document(name: str) -> Any:
    """The fixture NAME.json."""
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes())


def frames(name: str) -> list[bytes]:
    """The frames of the fixture NAME.sse."""
    return [frame + b"\n\n" for frame in (FIXTURES / f"{name}.sse").read_bytes().split(b"\n\n") if frame]


def streamed(*parts: bytes) -> Reply:
    """An event stream of these frames."""
    return Reply(headers={"Content-Type": "text/event-stream; charset=utf-8"}, frames=list(parts))


def event(name: str, **fields: Any) -> bytes:
    """One event as Anthropic frames it."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), msgspec.json.encode({"type": name, **fields}))


def failure(name: str) -> Reply:
    """A refusal out of errors.json."""
    entry = document("errors")[name]
    return Reply.json(entry["body"], status=entry["status"], headers=entry["headers"])


def messages_chat(seen: Seen) -> Reply:
    """The dialect as a `FakeUpstream` answers it: repeats the last text word by word, whole or as a stream."""
    if seen.path != "/v1/messages":
        return Reply.json({"type": "error", "error": {"type": "not_found_error", "message": seen.path}}, status=404)
    asked = seen.json
    content = asked["messages"][-1]["content"]
    last = content if isinstance(content, str) else content[-1].get("text", "no text")
    words = [f"{word} " for word in last.split()]
    usage = {"input_tokens": len(words) + 3, "output_tokens": len(words)}
    head = {"id": "msg_1", "type": "message", "role": "assistant", "model": asked["model"], "stop_sequence": None}
    if not asked.get("stream"):
        content = [{"type": "text", "text": "".join(words)}]
        return Reply.json({**head, "content": content, "stop_reason": "end_turn", "usage": usage})
    start = {**head, "content": [], "stop_reason": None, "usage": {**usage, "output_tokens": 1}}
    deltas = [event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in words]
    return streamed(
        event("message_start", message=start),
        event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *deltas,
        event("content_block_stop", index=0),
        event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage=usage),
        event("message_stop"),
    )


@contextlib.asynccontextmanager
async def provider(fake: FakeUpstream, **options: Any) -> AsyncIterator[AnthropicProvider]:
    """A started provider that talks to `fake`."""
    link = Upstream()
    subject = AnthropicProvider(
        msgspec.convert({"base_url": fake.url}, AnthropicProvider.Options)
        if not options
        else AnthropicProvider.Options(base_url=fake.url, **options),
        link,
    )
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


def target(model: str = ADAPTIVE) -> Target:
    """Where attempts go."""
    return Target("anthropic", model, "public-name")


def asking(**fields: Any) -> ChatRequest:
    """A request with these fields, and a short message unless `messages` are among them."""
    body = {"model": "public-name", "messages": [{"role": "user", "content": "hi"}], **fields}
    return decode_chat_request(msgspec.json.encode(body))


async def chunks_of(reply: Reply, **options: Any) -> list[ChatChunk]:
    """What the provider makes of a stream."""
    async with FakeUpstream(messages_chat) as fake, provider(fake, **options) as subject:
        fake.enqueue(reply)
        return [chunk async for chunk in subject.stream_chat(ask(), target())]


async def folded(reply: Reply) -> ChatCompletion:
    """The same as one answer."""

    async def again(chunks: list[ChatChunk]) -> AsyncIterator[ChatChunk]:
        for chunk in chunks:
            yield chunk

    return await fold_chat(again(await chunks_of(reply)))


async def answer_to(reply: Reply) -> ChatCompletion:
    """What the provider makes of a whole answer."""
    async with FakeUpstream(messages_chat) as fake, provider(fake) as subject:
        fake.enqueue(reply)
        return await subject.chat(ask(), target())


def parsed(name: str) -> list[Any]:
    """The data of a stream fixture's events."""
    return [msgspec.json.decode(found.data) for found in EventParser().feed((FIXTURES / f"{name}.sse").read_bytes())]
