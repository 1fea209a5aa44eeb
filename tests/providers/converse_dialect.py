"""Bedrock's side of the wire, for tests: an encoder of event-stream frames, fixtures, and a provider to read them.

`frame` is written from the format's description and shares nothing with the decoder under test; botocore, which reads
what it writes in `test_bedrock_event_stream`, vouches for it.
"""

from __future__ import annotations

import contextlib
import struct
import zlib
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from gateway import ChatChunk, ChatCompletion, ChatRequest, Secret, Target, Upstream
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import decode_chat_request
from gateway.testing import FakeUpstream, Reply, Seen, ask
from gateway_providers.bedrock import BedrockProvider

FIXTURES = Path(__file__).parent / "fixtures" / "bedrock"
STREAM_TYPE = "application/vnd.amazon.eventstream"
BUDGET = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"  # takes a thinking budget, a temperature, cache points
ADAPTIVE = "us.anthropic.claude-sonnet-5-v1:0"  # takes an effort, refuses a temperature
PLAIN = "meta.llama4-maverick-17b-instruct-v1:0"  # neither thinks nor caches
REGION = "eu-west-1"
KEY_ID, SECRET, TOKEN = (
    "AKIDFORTESTSONLY0001",
    "wJalrXUtnFEMI/tests+only/bPxRfiCYzz",
    "IQoJb3JpZ2luX2VjTESTS//////////wEaCX",
)


def document(name: str) -> Any:
    """The fixture NAME.json."""
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes())


def frame(headers: Mapping[str, str], payload: bytes) -> bytes:
    """One frame of the event stream."""
    block = b"".join(
        struct.pack(">B", len(name.encode()))
        + name.encode()
        + struct.pack(">BH", 7, len(value.encode()))
        + value.encode()
        for name, value in headers.items()
    )
    lengths = struct.pack(">II", 16 + len(block) + len(payload), len(block))
    message = lengths + struct.pack(">I", zlib.crc32(lengths)) + block + payload
    return message + struct.pack(">I", zlib.crc32(message))


def event(kind: str, **fields: Any) -> bytes:
    """One event as Bedrock frames it."""
    headers = {":event-type": kind, ":content-type": "application/json", ":message-type": "event"}
    return frame(headers, msgspec.json.encode(fields))


def exception(kind: str, **fields: Any) -> bytes:
    """One exception inside a stream."""
    headers = {":exception-type": kind, ":content-type": "application/json", ":message-type": "exception"}
    return frame(headers, msgspec.json.encode(fields))


def frames(name: str) -> list[bytes]:
    """The frames of the fixture NAME.events.json."""
    return [event(kind, **fields) for kind, fields in document(f"{name}.events")]


def streamed(*parts: bytes) -> Reply:
    """An event stream of these frames."""
    return Reply(headers={"Content-Type": STREAM_TYPE}, frames=list(parts))


def failure(name: str) -> Reply:
    """A refusal out of errors.json."""
    entry = document("errors")[name]
    return Reply.json(entry["body"], status=entry["status"], headers=entry["headers"])


def converse(seen: Seen, ended: str = "end_turn") -> Reply:
    """The dialect as a `FakeUpstream` answers it: repeats the last text word by word, whole or as a stream."""
    words = [f"{word} " for word in seen.json["messages"][-1]["content"][-1]["text"].split()]
    usage = {"inputTokens": len(words) + 3, "outputTokens": len(words), "totalTokens": 2 * len(words) + 3}
    if seen.path.endswith("/converse"):
        message = {"role": "assistant", "content": [{"text": "".join(words)}]}
        metrics = {"latencyMs": 1}
        return Reply.json({"output": {"message": message}, "stopReason": ended, "usage": usage, "metrics": metrics})
    return streamed(
        event("messageStart", role="assistant"),
        *(event("contentBlockDelta", delta={"text": word}, contentBlockIndex=0) for word in words),
        event("contentBlockStop", contentBlockIndex=0),
        event("messageStop", stopReason=ended),
        event("metadata", usage=usage, metrics={"latencyMs": 1}),
    )


def keys(*, token: bool = False) -> dict[str, Any]:
    """Options that hold static credentials."""
    found = {"access_key_id": Secret("literal", KEY_ID), "secret_access_key": Secret("literal", SECRET)}
    return {**found, "session_token": Secret("literal", TOKEN)} if token else found


@contextlib.asynccontextmanager
async def provider(fake: FakeUpstream, **options: Any) -> AsyncIterator[BedrockProvider]:
    """A started provider that talks to `fake`, with static keys unless `options` say otherwise."""
    link = Upstream()
    subject = BedrockProvider(
        BedrockProvider.Options(region=REGION, base_url=fake.url, **(options or keys())),
        link,
    )
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


def target(model: str = BUDGET) -> Target:
    """Where attempts go."""
    return Target("bedrock", model, "public-name")


def asking(**fields: Any) -> ChatRequest:
    """A request with these fields, and a short message unless `messages` are among them."""
    body = {"model": "public-name", "messages": [{"role": "user", "content": "hi"}], **fields}
    return decode_chat_request(msgspec.json.encode(body))


async def chunks_of(reply: Reply, *, request: ChatRequest | None = None) -> list[ChatChunk]:
    """What the provider makes of a stream."""
    async with FakeUpstream(converse) as fake, provider(fake) as subject:
        fake.enqueue(reply)
        return [chunk async for chunk in subject.stream_chat(request or ask(), target())]


async def folded(reply: Reply, *, request: ChatRequest | None = None) -> ChatCompletion:
    """The same as one answer."""

    async def again(chunks: list[ChatChunk]) -> AsyncIterator[ChatChunk]:
        for chunk in chunks:
            yield chunk

    return await fold_chat(again(await chunks_of(reply, request=request)))


async def answer_to(reply: Reply, *, request: ChatRequest | None = None) -> ChatCompletion:
    """What the provider makes of a whole answer."""
    async with FakeUpstream(converse) as fake, provider(fake) as subject:
        fake.enqueue(reply)
        return await subject.chat(request or ask(), target())
