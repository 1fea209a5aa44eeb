"""The conformance kit, and what is eSpeak's own: voices, speeds, formats, a bounded queue, processes that end."""

from __future__ import annotations

import asyncio
import io
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import soundfile
from gateway_espeak.encoding import FORMATS
from gateway_espeak.provider import EspeakProvider
from gateway_espeak.voices import BUILT_IN

from gateway import SpeechRequest, Target
from gateway.errors import UpstreamOverloaded, UpstreamRejected, UpstreamTruncated
from gateway.testing import check_provider

SENTENCE = "Herons stand still for hours, and then they strike."
LONG = SENTENCE * 70
TARGET = Target("espeak", "espeak")


@asynccontextmanager
async def espeak(**options: Any) -> AsyncIterator[EspeakProvider]:
    provider = EspeakProvider(EspeakProvider.Options(**options), None)  # type: ignore[arg-type]
    await provider.start()
    try:
        yield provider
    finally:
        await provider.close()


def asked(
    text: str = SENTENCE, *, voice: str = "alloy", format: str = "pcm", speed: float | None = None
) -> SpeechRequest:
    body = {"model": "m", "input": text, "voice": voice, "response_format": format, "speed": speed}
    return msgspec.convert(body, SpeechRequest)


async def said(provider: EspeakProvider, request: SpeechRequest) -> bytes:
    return b"".join([chunk.audio async for chunk in provider.speak(request, TARGET)])


def run(test: Callable[[EspeakProvider], Awaitable[Any]], **options: Any) -> Any:
    async def inside() -> Any:
        async with espeak(**options) as provider:
            return await test(provider)

    return asyncio.run(inside())


def test_provider_conforms() -> None:
    check_provider(EspeakProvider)


def test_gateway_finds_the_plugin_by_its_entry_point() -> None:
    (point,) = entry_points(group="gateway", name="espeak")
    assert point.load().EspeakProvider is EspeakProvider


def test_every_format_has_the_same_audio() -> None:
    assert EspeakProvider.speech_formats == FORMATS

    async def lengths(provider: EspeakProvider) -> dict[str, float]:
        found = {}
        for format in sorted(FORMATS - {"pcm"}):
            samples, rate = soundfile.read(io.BytesIO(await said(provider, asked(format=format))))
            assert rate == 24_000
            assert np.abs(samples).max() > 0.1, f"{format} is silence"
            found[format] = len(samples) / rate
        return {"pcm": len(await said(provider, asked())) / 48_000, **found}

    seconds = run(lengths)
    assert min(seconds.values()) > 2
    assert max(seconds.values()) - min(seconds.values()) < 0.2  # codecs pad, and no two sayings are quite the same


def test_pitch_is_unchanged_by_resampling() -> None:
    from gateway_espeak.encoding import encoder

    tone = (np.sin(np.arange(22_050) * 2 * np.pi * 440 / 22_050) * 8000).astype(np.int16)
    audio = encoder("pcm", 22_050)
    data = b"".join(audio.feed(tone[at : at + 2205].tobytes()) for at in range(0, len(tone), 2205)) + audio.close()
    spectrum = np.abs(np.fft.rfft(np.frombuffer(data, np.int16)))
    assert len(data) == 48_000
    assert spectrum.argmax() == 440
    assert np.delete(spectrum, range(430, 451)).max() < spectrum.max() / 1000


def test_every_built_in_voice_sounds_different() -> None:
    assert len(set(BUILT_IN.values())) == len(BUILT_IN) == 13

    async def all_of_them(provider: EspeakProvider) -> list[bytes]:
        return [await said(provider, asked(voice=name)) for name in BUILT_IN]

    assert all(run(all_of_them))


def test_every_language_gives_audio() -> None:
    async def silent(provider: EspeakProvider) -> list[str]:
        languages = sorted(set(provider._voices._hello.voices))
        assert len(languages) > 200
        sounds = {
            name: np.frombuffer(await said(provider, asked("hello 1", voice=name)), np.int16) for name in languages
        }
        return [name for name, audio in sounds.items() if np.abs(audio).max() < 100]

    assert run(silent) == []


@pytest.mark.parametrize(
    "voice", ["de", "en-gb", "fr-FR", "DE", "German", "en-us+f3", "English (America)+Annie", "en-us+whisper"]
)
def test_native_voices_of_espeak_give_audio(voice: str) -> None:
    assert run(lambda provider: said(provider, asked(voice=voice)))


@pytest.mark.parametrize(
    "voice", ["nobody", "en-us+nobody", "nobody+f3", "../../etc/passwd", "en-us+../f1", "+", "mb/x"]
)
def test_unknown_voice_is_a_caller_error(voice: str) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        run(lambda provider: said(provider, asked(voice=voice)))
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_value", "voice")


def test_speed_is_honoured_or_refused() -> None:
    async def sizes(provider: EspeakProvider) -> list[int]:
        return [len(await said(provider, asked(speed=speed))) for speed in (0.5, 1.0, 2.0, 4.0)]

    slow, usual, fast, fastest = run(sizes)
    assert slow > 1.8 * usual
    assert usual > 1.8 * fast
    assert fast > 1.8 * fastest
    with pytest.raises(UpstreamRejected) as caught:
        run(lambda provider: said(provider, asked(speed=0.3)))
    assert caught.value.param == "speed"


def test_text_without_words_is_a_short_silence() -> None:
    audio = np.frombuffer(run(lambda provider: said(provider, asked(" \n"))), np.int16)
    assert 0 < len(audio) <= 24_000
    assert np.abs(audio).max() <= 1  # the change of rate dithers


def test_text_is_never_interpreted_as_markup() -> None:
    async def both(provider: EspeakProvider) -> tuple[int, int]:
        marked = asked('<speak>one<break time="60s"/>two</speak> \0 [[w3:d]]')
        return len(await said(provider, marked)), len(await said(provider, asked("one")))

    marked, plain = run(both)
    assert plain < marked < 48_000 * 20


def test_audio_is_streamed_during_synthesis() -> None:
    async def pieces(provider: EspeakProvider) -> list[int]:
        return [len(chunk.audio) async for chunk in provider.speak(asked(LONG), TARGET)]

    sizes = run(pieces)
    assert len(sizes) > 100
    assert max(sizes) < 48_000


def test_closed_audio_stream_ends_its_process_and_the_next_call_is_served() -> None:
    async def leave(provider: EspeakProvider) -> bytes:
        stream = provider.speak(asked(LONG), TARGET)
        await anext(stream)
        before = children()
        await stream.aclose()  # type: ignore[attr-defined]
        assert not before & children()
        return await said(provider, asked())

    assert run(leave)


def test_full_queue_refuses_calls_until_it_drains() -> None:
    async def crowd(provider: EspeakProvider) -> None:
        first = provider.speak(asked(LONG), TARGET)
        await anext(first)
        second = asyncio.ensure_future(said(provider, asked()))
        await asyncio.sleep(0)
        with pytest.raises(UpstreamOverloaded):
            await said(provider, asked())
        await first.aclose()  # type: ignore[attr-defined]
        assert await second
        assert await said(provider, asked())

    run(crowd, queue=1)


def test_crashed_engine_truncates_only_its_own_audio() -> None:
    async def fall(provider: EspeakProvider) -> bytes:
        stream = provider.speak(asked(LONG), TARGET)
        await anext(stream)
        (child,) = children()
        os.kill(child, 9)
        with pytest.raises(UpstreamTruncated):
            async for _ in stream:
                pass
        return await said(provider, asked())

    assert run(fall)


def test_engine_that_crashed_while_idle_is_replaced() -> None:
    async def fall(provider: EspeakProvider) -> bytes:
        (child,) = children()
        (engine,) = provider._engines._slots._queue  # type: ignore[attr-defined]
        os.kill(child, 9)
        async with asyncio.timeout(10):
            while not engine.is_gone:
                await asyncio.sleep(0)
        return await said(provider, asked())

    assert run(fall)


def test_closing_ends_every_process() -> None:
    run(lambda provider: said(provider, asked()), processes=2)
    assert not children()


def test_invalid_options_prevent_the_start() -> None:
    with pytest.raises(ValueError, match="klingonese"):
        run(lambda provider: said(provider, asked()), language="klingonese")
    with pytest.raises(OSError, match="does not start"):
        run(lambda provider: said(provider, asked()), library="libnowhere.so")
    assert not children()


def children() -> set[int]:
    """Processes that this one has started and that still run."""
    lists = Path("/proc/self/task").glob("*/children")
    return {int(child) for listed in lists for child in listed.read_text().split()}
