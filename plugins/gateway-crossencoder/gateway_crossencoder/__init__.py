"""Rerank by a local cross-encoder in ONNX form, without a vendor.

Configure it as any other::

    [providers.local-ranker]
    plugin = "crossencoder"
    model = "/srv/models/ms-marco-MiniLM-L6-v2"     # a folder with model.onnx and tokenizer.json

Sharp edges: a document is read as far as it fits beside the query; each worker of the gateway has a model of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, TypeVar

from msgspec import Meta, Struct

from gateway import CompletionUsage, Provider, RankedDocument, Rerank, RerankAnswer, RerankRequest, Target, hookimpl
from gateway.errors import ContextLengthExceeded, UpstreamOverloaded, UpstreamTimeout

if TYPE_CHECKING:
    from .model import Model

T = TypeVar("T")


class CrossEncoderProvider(Provider, Rerank):
    """Computes scores in a thread."""

    name = "crossencoder"
    rerank_fields: ClassVar[frozenset[str] | None] = frozenset({"max_tokens_per_doc"})

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [providers.NAME]."""

        model: Annotated[str, Meta(min_length=1)]
        max_tokens: Annotated[int, Meta(ge=16, le=1_000_000)] = 512
        sigmoid: bool = True
        batch: Annotated[int, Meta(ge=1, le=1024)] = 16
        threads: Annotated[int, Meta(ge=1, le=256)] = 1
        queue: Annotated[int, Meta(ge=0, le=10_000)] = 32

    async def start(self) -> None:
        """Load the model, which takes seconds; nobody waits for the event loop meanwhile."""
        self._calls = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="crossencoder")
        try:
            self._model = await self._in_thread(_load, self.options)
        except BaseException:
            self._thread.shutdown(wait=False)
            raise

    async def close(self) -> None:
        """End the thread, after the batch that it is at."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def rerank(self, request: RerankRequest, target: Target) -> RerankAnswer:
        """A score for each document."""
        if self._calls > self.options.queue:
            raise UpstreamOverloaded(detail=f"{self._calls} calls are being computed or wait")
        self._calls += 1
        try:
            async with asyncio.timeout(target.timeouts.total):
                return await self._rank(request)
        except TimeoutError:
            raise UpstreamTimeout() from None
        finally:
            self._calls -= 1

    async def _rank(self, request: RerankRequest) -> RerankAnswer:
        model, texts, batch = self._model, request.texts, self.options.batch
        query = await self._in_thread(model.count, request.query)
        if query > model.most_of_query:
            text = f"This model reads {model.most_of_query} tokens of a query, and this one has {query}."
            raise ContextLengthExceeded(text, param="query")
        results, tokens = list[RankedDocument](), 0
        for at in range(0, len(texts), batch):
            # The thread takes other calls between two batches.
            scores, read = await self._in_thread(
                model.scores, request.query, texts[at : at + batch], model.room(query, request.max_tokens_per_doc)
            )
            results += [RankedDocument(at + place, score) for place, score in enumerate(scores)]
            tokens += read
        return RerankAnswer(results, CompletionUsage(tokens, 0, tokens))

    async def _in_thread(self, work: Callable[..., T], *words: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *words)


def _load(options: CrossEncoderProvider.Options) -> Model:
    """Import onnxruntime and load the model: seconds, so neither on the event loop nor when the package is imported."""
    from .model import Model

    return Model(options.model, max_tokens=options.max_tokens, threads=options.threads, sigmoid=options.sigmoid)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Tell the gateway about the provider."""
    register(CrossEncoderProvider)
