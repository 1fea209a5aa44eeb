"""The conformance kit, and what is the model's own: meaning, lengths, refusals, a bounded queue, threads that end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from importlib.metadata import entry_points
from typing import Any

import msgspec
import numpy as np
import pytest
from gateway_minilm import MinilmProvider

from gateway import EmbeddingAnswer, EmbeddingRequest, Target, Timeouts
from gateway.errors import ContextLengthExceeded, UpstreamOverloaded, UpstreamRejected, UpstreamTimeout
from gateway.testing import check_provider

TARGET = Target("minilm", "minilm")
Run = Callable[[Callable[[MinilmProvider], Awaitable[Any]]], Any]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    """One provider for all tests, with room for two calls: loading it takes longer than all of them."""
    provider = MinilmProvider(MinilmProvider.Options(queue=1), None)  # type: ignore[arg-type]
    with asyncio.Runner() as runner:
        runner.run(provider.start())

        def inside(test: Callable[[MinilmProvider], Awaitable[Any]]) -> Any:
            async def called() -> Any:
                return await test(provider)

            return runner.run(called())

        yield inside
        runner.run(provider.close())
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("minilm")]


def asked(given: Any, **fields: Any) -> EmbeddingRequest:
    return msgspec.convert({"model": "m", "input": given, **fields}, EmbeddingRequest)


def vectors(answer: EmbeddingAnswer) -> np.ndarray:
    assert all(isinstance(vector, bytes) for vector in answer.vectors)
    return np.stack([np.frombuffer(bytes(vector), "<f4") for vector in answer.vectors])  # type: ignore[arg-type]


def test_provider_conforms() -> None:
    check_provider(MinilmProvider)


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="minilm")
    assert point.load().MinilmProvider is MinilmProvider


def test_vectors_have_length_one_and_similar_texts_are_close(run: Run) -> None:
    texts = ["A heron stands in the water.", "A grey bird waits in a river.", "The stock exchange closed early."]
    found = vectors(run(lambda provider: provider.embed(asked(texts), TARGET)))
    assert found.shape == (3, 384)
    assert np.linalg.norm(found, axis=1) == pytest.approx(1.0, abs=1e-6)
    assert found[0] @ found[1] > found[0] @ found[2] + 0.3


def test_dimensions_shorten_vectors_to_length_one(run: Run) -> None:
    whole = vectors(run(lambda provider: provider.embed(asked("heron"), TARGET)))[0]
    short = vectors(run(lambda provider: provider.embed(asked("heron", dimensions=64), TARGET)))[0]
    assert short == pytest.approx(whole[:64] / np.linalg.norm(whole[:64]), abs=1e-6)
    with pytest.raises(UpstreamRejected) as caught:
        run(lambda provider: provider.embed(asked("heron", dimensions=385), TARGET))
    assert (caught.value.status, caught.value.param) == (400, "dimensions")


def test_usage_counts_the_models_tokens(run: Run) -> None:
    answer = run(lambda provider: provider.embed(asked(["hello world", "heron"]), TARGET))
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 4 + 3  # two of each frame the text
    assert answer.usage.completion_tokens == 0


def test_batched_inputs_give_the_same_vectors_as_single_ones(run: Run) -> None:
    texts = [f"{number} herons " * (1 + number % 9) for number in range(70)]
    together = vectors(run(lambda provider: provider.embed(asked(texts), TARGET)))
    for number in (0, 31, 32, 69):
        request = asked(texts[number])
        alone = vectors(run(lambda provider, request=request: provider.embed(request, TARGET)))[0]  # type: ignore[misc]
        assert together[number] == pytest.approx(alone, abs=1e-5)


def test_text_longer_than_the_model_context_is_refused(run: Run) -> None:
    assert run(lambda provider: provider.embed(asked("a " * 254), TARGET))
    with pytest.raises(ContextLengthExceeded) as caught:
        run(lambda provider: provider.embed(asked(["short", "a " * 255]), TARGET))
    assert caught.value.param == "input"
    assert "input 1 has 257" in caught.value.message


def test_full_queue_refuses_calls_until_it_drains(run: Run) -> None:
    async def crowd(provider: MinilmProvider) -> None:
        calls = [asyncio.ensure_future(provider.embed(asked(["heron " * 200] * 64), TARGET)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(UpstreamOverloaded):
            await provider.embed(asked("heron"), TARGET)
        calls[0].cancel()
        await asyncio.wait([calls[0]])
        assert (await provider.embed(asked("heron"), TARGET)).vectors
        assert len((await calls[1]).vectors) == 64

    run(crowd)


def test_event_loop_runs_during_a_computation(run: Run) -> None:
    async def watch(provider: MinilmProvider) -> float:
        call = asyncio.ensure_future(provider.embed(asked(["heron " * 200] * 64), TARGET))
        loop, worst = asyncio.get_running_loop(), 0.0
        while not call.done():
            before = loop.time()
            await asyncio.wait([call], timeout=0.005)
            worst = max(worst, loop.time() - before)
        return worst

    assert run(watch) < 0.5


def test_deadline_is_kept(run: Run) -> None:
    hasty = Target("minilm", "minilm", timeouts=Timeouts(total=0.05))
    with pytest.raises(UpstreamTimeout):
        run(lambda provider: provider.embed(asked(["heron " * 200] * 640), hasty))
