"""What is heard in which files, by one engine for all of these tests: loading its model takes longer than most."""

from __future__ import annotations

import asyncio
import io
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import soundfile
import soxr
from gateway_sphinx.audio import BLOCK, samples
from gateway_sphinx.provider import SphinxProvider
from sounds import SAID, SPOKEN, TARGET, File, asked, noise, spoken, written

from gateway import Transcript, TranscriptEvent
from gateway.errors import UpstreamRejected

Run = Callable[[Callable[[SphinxProvider], Awaitable[Any]]], Any]
Heard = Callable[..., Transcript]


@pytest.fixture(scope="module")
def run() -> Iterator[Run]:
    provider = SphinxProvider(SphinxProvider.Options(), None)  # type: ignore[arg-type]
    with asyncio.Runner() as runner:
        runner.run(provider.start())

        def inside(test: Callable[[SphinxProvider], Awaitable[Any]]) -> Any:
            async def called() -> Any:
                return await test(provider)

            return runner.run(called())

        yield inside
        runner.run(provider.close())


@pytest.fixture
def heard(run: Run) -> Heard:
    def transcribed(data: bytes, **fields: Any) -> Transcript:
        transcript = run(lambda provider: provider.transcribe(asked(File(data), **fields), TARGET))
        assert isinstance(transcript, Transcript)
        return transcript

    return transcribed


def test_words_and_their_times_are_transcribed(heard: Heard) -> None:
    pause = np.zeros(24_000, np.float32)
    transcript = heard(written(np.concatenate([pause, spoken(), pause, spoken(), pause]), format="WAV"))
    assert transcript.text == f"{SAID} {SAID}"
    assert transcript.language == "english"
    first, second = transcript.segments or []
    assert first.text == second.text == SAID
    length = len(spoken()) / 16_000
    assert transcript.duration == pytest.approx(2 * length + 4.5, abs=0.05)
    for segment, at in ((first, 1.5), (second, 3.0 + length)):
        assert segment.start == pytest.approx(at, abs=0.2)
        assert segment.end == pytest.approx(at + length, abs=0.3)
    words = transcript.words or []
    assert [word.word for word in words] == SAID.split() * 2
    assert all(one.end <= other.start + 0.01 for one, other in pairwise(words))


@pytest.mark.parametrize(
    "container",
    [
        {"format": "WAV", "subtype": "FLOAT"},
        {"format": "FLAC"},
        {"format": "OGG", "subtype": "VORBIS"},
        {"format": "MP3"},
    ],
    ids=lambda container: container["format"],
)
def test_every_readable_file_is_transcribed(heard: Heard, container: dict[str, Any]) -> None:
    assert "president" in heard(written(spoken(), **container)).text


def test_any_sample_rate_and_channel_count_is_transcribed(heard: Heard) -> None:
    samples = soxr.resample(spoken(), 16_000, 44_100)
    assert "president" in heard(written(np.stack([samples, samples], axis=1), rate=44_100, format="WAV")).text


def test_streamed_wav_without_a_length_is_transcribed(heard: Heard) -> None:
    data = bytearray(written(spoken(), format="WAV", subtype="PCM_16"))
    data[4:8] = data[40:44] = b"\xff" * 4
    assert "president" in heard(bytes(data)).text


def test_mp3_of_several_blocks_is_decoded_without_gaps(capfd: pytest.CaptureFixture[str]) -> None:
    data = written(np.tile(spoken(), 8), format="MP3", bitrate_mode="CONSTANT", compression_level=0.6)
    whole, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    with tempfile.TemporaryFile() as file:
        file.write(data)
        file.seek(0)
        read = np.frombuffer(b"".join(samples(file, 60.0)), np.int16) / 32_767
    assert len(whole) > 3 * BLOCK
    assert len(read) == len(whole)
    assert np.abs(read - whole).max() < 0.001
    assert "mpg123" not in capfd.readouterr().err


@pytest.mark.parametrize(
    "data",
    [
        b"no audio at all",
        b"",
        b"\x00" * 4096,
        b"RIFF\xff\xff\xff\xffWAVE",
        b"\x1aE\xdf\xa3webm" * 99,
        b"fLaC" + b"\xff" * 99,
    ],
    ids=["text", "empty", "zeros", "header", "webm", "flac"],
)
def test_file_that_is_not_audio_is_a_caller_error(heard: Heard, data: bytes) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        heard(data)
    assert (caught.value.status, caught.value.param) == (400, "file")


def test_damaged_file_does_not_affect_the_next_call(run: Run) -> None:
    data = bytearray(SPOKEN)
    data[len(data) // 2 : len(data) // 2 + 2000] = b"\x55" * 2000

    async def both(provider: SphinxProvider) -> str:
        try:
            await provider.transcribe(asked(File(bytes(data))), TARGET)
        except UpstreamRejected as error:
            assert error.param == "file"
        return (await provider.transcribe(asked(File(SPOKEN)), TARGET)).text

    assert run(both) == SAID


@pytest.mark.parametrize("fields", [{"language": "de"}, {"language": "deu-AT"}, {"languages": ["fr", "it"]}])
def test_unsupported_language_is_a_caller_error(heard: Heard, fields: dict[str, Any]) -> None:
    with pytest.raises(UpstreamRejected) as caught:
        heard(SPOKEN, **fields)
    assert caught.value.param == next(iter(fields))


@pytest.mark.parametrize("fields", [{"language": "en"}, {"language": "EN-us"}, {"languages": ["de", "en_GB"]}])
def test_every_name_of_english_is_accepted(heard: Heard, fields: dict[str, Any]) -> None:
    assert heard(SPOKEN, **fields).text == SAID


def test_transcript_does_not_depend_on_earlier_calls(run: Run) -> None:
    async def three(provider: SphinxProvider) -> list[str]:
        files = [SPOKEN, written(noise(2), format="WAV"), SPOKEN]
        return [(await provider.transcribe(asked(File(data)), TARGET)).text for data in files]

    first, _, second = run(three)
    assert first == second == SAID


def test_stream_sends_each_utterance_as_it_is_transcribed(run: Run) -> None:
    pause = np.zeros(24_000, np.float32)
    data = written(np.concatenate([spoken(), pause, spoken()]), format="WAV")

    async def events(provider: SphinxProvider) -> list[TranscriptEvent]:
        return [event async for event in provider.stream_transcript(asked(File(data)), TARGET)]

    *deltas, last = run(events)
    assert [event.delta for event in deltas] == [SAID, f" {SAID}"]
    assert last.done is not None
    assert "".join(event.delta for event in deltas) == last.done.text
