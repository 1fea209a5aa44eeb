"""Embeddings by all-MiniLM-L6-v2, in English and without a vendor.

Configure it as any other::

    [providers.minilm]
    plugin = "minilm"
    threads = 1           # of torch's, in each of the gateway's workers
    queue = 32            # calls that may wait while one is computed, beyond which callers get a 503

Sharp edges: a text may have 256 tokens, and a longer one is refused rather than cut; every worker of the gateway holds
a model of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from msgspec import Meta, Struct

from gateway import CompletionUsage, EmbeddingAnswer, EmbeddingRequest, Embeddings, Provider, Target, hookimpl
from gateway.errors import ContextLengthExceeded, UpstreamOverloaded, UpstreamRejected, UpstreamTimeout

if TYPE_CHECKING:
    from .model import Model

T = TypeVar("T")

BATCH = 32  # texts that are computed together; what is longer takes turns with other calls


class MinilmProvider(Provider, Embeddings):
    """Computes vectors in a thread."""

    name = "minilm"
    embedding_fields = frozenset({"dimensions"})

    class Options(Struct, frozen=True, forbid_unknown_fields=True):
        """The keys under [providers.NAME]."""

        threads: Annotated[int, Meta(ge=1, le=256)] = 1
        queue: Annotated[int, Meta(ge=0, le=10_000)] = 32

    async def start(self) -> None:
        """Load the model, which takes some seconds; nobody waits for the loop meanwhile."""
        self._calls = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="minilm")
        self._model = await self._in_thread(_load, self.options.threads)

    async def close(self) -> None:
        """End the thread, after the batch that it is at."""
        await asyncio.to_thread(self._thread.shutdown, cancel_futures=True)

    async def embed(self, request: EmbeddingRequest, target: Target) -> EmbeddingAnswer:
        """Vectors of length one; `dimensions` leaves their rest out."""
        if self._calls > self.options.queue:
            raise UpstreamOverloaded(detail=f"{self._calls} calls are being computed or wait")
        self._calls += 1
        try:
            async with asyncio.timeout(target.timeouts.total):
                return await self._embed(request)
        except TimeoutError:
            raise UpstreamTimeout() from None
        finally:
            self._calls -= 1

    async def _embed(self, request: EmbeddingRequest) -> EmbeddingAnswer:
        model = self._model
        texts = [text for text in request.inputs if isinstance(text, str)]  # all: takes_tokens is false
        dimensions = request.dimensions or model.dimensions
        if dimensions > model.dimensions:
            raise UpstreamRejected(f"This model has {model.dimensions} dimensions at most.", param="dimensions")
        counts = await self._in_thread(model.counts, texts)
        for index, count in enumerate(counts):
            if count > model.max_tokens:
                text = f"This model reads {model.max_tokens} tokens of a text; input {index} has {count}."
                raise ContextLengthExceeded(text, param="input")
        vectors: list[list[float] | bytes] = []
        for at in range(0, len(texts), BATCH):
            vectors += await self._in_thread(model.vectors, texts[at : at + BATCH], dimensions)
        total = sum(counts)
        return EmbeddingAnswer(vectors, CompletionUsage(total, 0, total))

    async def _in_thread(self, work: Callable[..., T], *words: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *words)


def _load(threads: int) -> Model:
    """Import torch, and load the model: seconds, so not on the loop and not when the package is imported."""
    from .model import Model

    return Model(threads)


@hookimpl
def register_providers(register: Callable[[type[Provider]], None]) -> None:
    """Tell the gateway about the provider."""
    register(MinilmProvider)
