"""Cohere's side of the wire, for tests: fixtures of the vendor's shape as replies, and a provider to read them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec

from gateway import ChatChunk, ChatCompletion, ChatRequest, EmbeddingRequest, Secret, Target, Upstream
from gateway.plugins.chunk_accumulator import fold_chat
from gateway.schemas.chat_request import decode_chat_request
from gateway.schemas.embeddings import decode_embedding_request
from gateway.sse import DONE, EventParser
from gateway.testing import FakeUpstream, Reply, Seen, ask
from gateway_providers.cohere import CohereProvider

FIXTURES = Path(__file__).parent / "fixtures" / "cohere"
KEY = "co-TESTSONLY-9a8b7c6d5e4f"
MODEL = "command-a-03-2025"
THINKING = "command-a-reasoning-08-2025"


def document(name: str) -> Any:
    """The fixture NAME.json."""
    return msgspec.json.decode((FIXTURES / f"{name}.json").read_bytes())


def frames(name: str) -> list[bytes]:
    """The frames of the fixture NAME.sse."""
    return [frame + b"\n\n" for frame in (FIXTURES / f"{name}.sse").read_bytes().split(b"\n\n") if frame]


def parsed(name: str) -> list[Any]:
    """The data of a stream fixture's events, without the marker that may follow them."""
    found = EventParser().feed((FIXTURES / f"{name}.sse").read_bytes())
    return [msgspec.json.decode(event.data) for event in found if event.data != b"[DONE]"]


def streamed(*parts: bytes) -> Reply:
    """An event stream of these frames."""
    return Reply(headers={"Content-Type": "text/event-stream"}, frames=list(parts))


def event(kind: str, **fields: Any) -> bytes:
    """One event as Cohere frames it."""
    return b"event: %b\ndata: %b\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **fields}))


def failure(name: str) -> Reply:
    """A refusal out of errors.json."""
    entry = document("errors")[name]
    return Reply.json(entry["body"], status=entry["status"], headers=entry["headers"])


def cohere(seen: Seen) -> Reply:
    """The dialect as a `FakeUpstream` answers it: repeats the last text word by word, or embeds texts by length."""
    if seen.path == "/v2/embed":
        texts, rest = seen.json["texts"], [0.5] * (seen.json.get("output_dimension", 2) - 1)
        meta = {"api_version": {"version": "2"}, "billed_units": {"input_tokens": float(len(texts))}}
        return Reply.json(
            {"id": "e", "embeddings": {"float": [[float(len(text)), *rest] for text in texts]}, "meta": meta}
        )
    if seen.path == "/v2/rerank":
        asked = seen.json
        query = set(asked["query"].split())
        scores = [len(query & set(text.split())) / len(query) for text in asked["documents"]]
        order = sorted(range(len(scores)), key=lambda at: -scores[at])[: asked.get("top_n")]
        meta = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1.0}}
        results = [{"index": at, "relevance_score": scores[at]} for at in order]
        return Reply.json({"id": "r", "results": results, "meta": meta})
    if seen.path != "/v2/chat":
        return Reply.json({"message": f"no such path: {seen.path}"}, status=404)
    asked = seen.json
    words = [f"{word} " for word in asked["messages"][-1]["content"].split()]
    tokens = {"input_tokens": float(len(words) + 3), "output_tokens": float(len(words))}
    usage = {"billed_units": tokens, "tokens": tokens}
    if not asked.get("stream"):
        message = {"role": "assistant", "content": [{"type": "text", "text": "".join(words)}]}
        return Reply.json({"id": "c", "finish_reason": "COMPLETE", "message": message, "usage": usage})
    return streamed(
        event("message-start", id="c", delta={"message": {"role": "assistant", "content": [], "tool_calls": []}}),
        event("content-start", index=0, delta={"message": {"content": {"type": "text", "text": ""}}}),
        *(event("content-delta", index=0, delta={"message": {"content": {"text": word}}}) for word in words),
        event("content-end", index=0),
        event("message-end", id="c", delta={"finish_reason": "COMPLETE", "usage": usage}),
        DONE,
    )


@contextlib.asynccontextmanager
async def provider(fake: FakeUpstream, **options: Any) -> AsyncIterator[CohereProvider]:
    """A started provider that talks to `fake`."""
    link = Upstream()
    options = {"api_key": Secret("literal", KEY), **options}
    subject = CohereProvider(CohereProvider.Options(base_url=fake.url, **options), link)
    await subject.start()
    try:
        yield subject
    finally:
        await subject.close()
        await link.close()


def target(model: str = MODEL) -> Target:
    """Where attempts go."""
    return Target("cohere", model, "public-name")


def asking(**fields: Any) -> ChatRequest:
    """A chat request with these fields, and a short message unless `messages` are among them."""
    body = {"model": "public-name", "messages": [{"role": "user", "content": "hi"}], **fields}
    return decode_chat_request(msgspec.json.encode(body))


def embedding(input: Any, **fields: Any) -> EmbeddingRequest:
    """An embeddings request."""
    return decode_embedding_request(msgspec.json.encode({"model": "public-name", "input": input, **fields}))


async def chunks_of(reply: Reply, *, request: ChatRequest | None = None) -> list[ChatChunk]:
    """What the provider makes of a stream."""
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
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
    async with FakeUpstream(cohere) as fake, provider(fake) as subject:
        fake.enqueue(reply)
        return await subject.chat(request or ask(), target())
