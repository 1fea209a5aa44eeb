"""The conformance kit, and the processes: a bounded queue before them, and ends that leave none behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gateway_sphinx.provider import SphinxProvider
from sounds import SAID, SPOKEN, TARGET, EndlessFile, File, asked, noise, written

from gateway import Target, Timeouts
from gateway.errors import UpstreamOverloaded, UpstreamRejected, UpstreamTimeout, UpstreamUnreachable
from gateway.testing import check_provider


def run(test: Callable[[SphinxProvider], Awaitable[Any]], **options: Any) -> Any:
    """Start a provider for one test, and close it."""

    async def inside() -> Any:
        provider = SphinxProvider(SphinxProvider.Options(**options), None)  # type: ignore[arg-type]
        await provider.start()
        try:
            return await test(provider)
        finally:
            await provider.close()

    return asyncio.run(inside())


def test_provider_conforms() -> None:
    check_provider(SphinxProvider)


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="sphinx")
    assert point.load().SphinxProvider is SphinxProvider


def test_audio_longer_than_configured_is_refused() -> None:
    silence = written(np.zeros(16_000 * 3, np.float32), format="FLAC")
    with pytest.raises(UpstreamRejected, match="longer than 2 seconds") as caught:
        run(lambda provider: provider.transcribe(asked(File(silence)), TARGET), longest=2.0)
    assert caught.value.param == "file"


def test_full_queue_refuses_calls_until_it_drains() -> None:
    async def crowd(provider: SphinxProvider) -> None:
        slow = EndlessFile()
        first = asyncio.ensure_future(provider.transcribe(asked(slow), TARGET))
        await slow.gate.wait()
        second = asyncio.ensure_future(provider.transcribe(asked(File(SPOKEN)), TARGET))
        await asyncio.sleep(0)
        with pytest.raises(UpstreamOverloaded):
            await provider.transcribe(asked(File(SPOKEN)), TARGET)
        first.cancel()
        assert (await second).text == SAID

    run(crowd, queue=1)


def test_call_that_is_cancelled_ends_its_process() -> None:
    async def cancel(provider: SphinxProvider) -> str:
        before = children()
        rustle = File(written(noise(600), format="WAV"))
        stream = provider.stream_transcript(asked(rustle), TARGET)
        task = asyncio.ensure_future(anext(stream))
        await rustle.sent.wait()
        task.cancel()
        await asyncio.wait([task])
        assert not before & children()
        return (await provider.transcribe(asked(File(SPOKEN)), TARGET)).text

    assert run(cancel) == SAID


def test_deadline_is_kept() -> None:
    hasty = Target("sphinx", "sphinx", timeouts=Timeouts(total=0.3))
    rustle = File(written(noise(600), format="WAV"))
    with pytest.raises(UpstreamTimeout):
        run(lambda provider: provider.transcribe(asked(rustle), hasty))


def test_crashed_engine_is_replaced() -> None:
    async def fall(provider: SphinxProvider) -> str:
        slow = EndlessFile()
        call = asyncio.ensure_future(provider.transcribe(asked(slow), Target("a", "b", timeouts=Timeouts(total=5))))
        await slow.gate.wait()
        (child,) = children()
        os.kill(child, 9)
        call.cancel()
        await asyncio.wait([call])
        return (await provider.transcribe(asked(File(SPOKEN)), TARGET)).text

    assert run(fall) == SAID


def test_engine_that_crashes_on_a_file_is_an_unreachable_upstream() -> None:
    async def fall(provider: SphinxProvider) -> None:
        rustle = File(written(noise(600), format="WAV"))
        call = asyncio.ensure_future(provider.transcribe(asked(rustle), TARGET))
        await rustle.sent.wait()
        (child,) = children()
        os.kill(child, 9)
        with pytest.raises(UpstreamUnreachable):
            await call

    run(fall)


def test_closing_ends_every_process() -> None:
    run(lambda provider: provider.transcribe(asked(File(SPOKEN)), TARGET), processes=2)
    assert not children()


def children() -> set[int]:
    """Processes that this one has started and that still run."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(child) for listed in lists for child in listed.read_text().split()}
