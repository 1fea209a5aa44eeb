"""Cohere's own API, version 2: chat, embeddings and rerankings.

::

    [providers.cohere]
    plugin = "cohere"
    api_key = "env:COHERE_API_KEY"

    [providers.cohere.models."embed-*"]     # only where the built-in flags are wrong
    input_type = "search_query"

Requests are translated by `request`, whole answers by `answer`, streams by `events`, embeddings by `embedding`,
rerankings by `rerank`. Two fields of Cohere's own may come from callers: `k` in a chat, `input_type` with embeddings.
Sharp edge: Cohere counts tokens twice, and the wire's counters are not the ones it bills by where it adds a prompt of
its own (`answer`).
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from typing import ClassVar

from msgspec import field

from gateway import (
    Answer,
    Chat,
    ChatChunk,
    ChatCompletion,
    ChatRequest,
    EmbeddingAnswer,
    EmbeddingRequest,
    Embeddings,
    Provider,
    Rerank,
    RerankAnswer,
    RerankRequest,
    Target,
    Upstream,
    hookimpl,
)
from gateway.errors import UpstreamTruncated
from gateway.plugins.upstream_errors import error_of_answer

from .._shared.chat_parts import CHAT_FIELDS
from .._shared.http_provider import HttpOptions, HttpProvider
from .._shared.whole_stream import chunk_of, chunks_of, folded, is_event_stream
from ..gemini.parallel import in_parallel
from .answer import read_completion
from .embedding import WireVectors, batch_bodies, joined, read_vectors
from .events import EventReader
from .models import ModelFlags, traits_of
from .request import chat_body
from .rerank import read_ranking, rerank_body

INVALID_TOKEN = 498  # Cohere's word for a key that it does not take; Groq's for having no capacity
AT_ONCE = 4  # batches of one request for embeddings under way


class CohereProvider(HttpProvider, Chat, Embeddings, Rerank):
    """One key."""

    name = "cohere"
    chat_fields: ClassVar[frozenset[str] | None] = CHAT_FIELDS | {
        "logprobs",
        "seed",
        "frequency_penalty",
        "presence_penalty",
        "k",
    }
    embedding_fields: ClassVar[frozenset[str] | None] = frozenset({"dimensions", "input_type"})
    rerank_fields: ClassVar[frozenset[str] | None] = frozenset({"max_tokens_per_doc"})

    class Options(HttpOptions, frozen=True, forbid_unknown_fields=True, kw_only=True):
        """The keys under [providers.NAME]."""

        base_url: str = "https://api.cohere.com"
        # by a pattern of Cohere's names; the first that says a flag wins
        models: dict[str, ModelFlags] = field(default_factory=dict)

    options: Options

    def __init__(self, options: Options, upstream: Upstream) -> None:
        super().__init__(options, upstream)
        self._server = self.base_url.removesuffix("/v2")
        self._traits_of = cache(partial(traits_of, configured=options.models))  # as many as there are targets

    def cache_marks(self, request: ChatRequest, target: Target) -> frozenset[str]:
        return frozenset()

    def prefill(self, target: Target) -> str:
        return "none"

    async def chat(self, request: ChatRequest, target: Target) -> ChatCompletion:
        """One JSON answer."""
        body = chat_body(request, target.model, self._traits_of(target.model), stream=False)
        async with await self.post_url(f"{self._server}/v2/chat", body, target) as answer:
            whole = await answer.read()
        if is_event_stream(whole):
            completion = await folded(chunks_of(whole, EventReader(self.hidden)))
        else:
            completion = read_completion(whole, self.hidden)
        if request.service_tier is not None:
            completion.service_tier = "default"  # a wish that was not passed on
        return completion

    async def stream_chat(self, request: ChatRequest, target: Target) -> AsyncIterator[ChatChunk]:
        """The chunks of one event stream."""
        body = chat_body(request, target.model, self._traits_of(target.model), stream=True)
        async with await self.post_url(f"{self._server}/v2/chat", body, target) as answer:
            if answer.headers.get("Content-Type", "").startswith("application/json"):
                chunk = chunk_of(read_completion(await answer.read(), self.hidden))  # a server that does not stream
                if request.service_tier is not None:
                    chunk.service_tier = "default"
                yield chunk
                return
            reader = EventReader(self.hidden)
            while events := await answer.read_events():
                for event in events:
                    step = reader.read(event)
                    if step is not None:
                        if request.service_tier is not None:
                            step.service_tier = "default"
                        yield step
                    if reader.complete:
                        answer.release()
                        return
            raise UpstreamTruncated()

    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        """One vector for each text, in as many calls as Cohere's limit asks for."""
        bodies = batch_bodies(request, target.model, self._traits_of(target.model))

        async def batch(body: bytes) -> WireVectors:
            async with await self.post_url(f"{self._server}/v2/embed", body, target) as answer:
                return read_vectors(await answer.read(), self.hidden)

        answers = await in_parallel([partial(batch, body) for body in bodies], at_once=AT_ONCE)
        return joined(answers, request)

    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        """One JSON answer."""
        body = rerank_body(request, target.model)
        async with await self.post_url(f"{self._server}/v2/rerank", body, target) as answer:
            return read_ranking(await answer.read(), self.hidden)

    async def raise_for_status(self, answer: Answer) -> None:
        if answer.status == INVALID_TOKEN:
            raise error_of_answer(401, answer.headers, b"", self.hidden)
        await super().raise_for_status(answer)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """The `cohere` plugin."""
    register(CohereProvider)
