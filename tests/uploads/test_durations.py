"""What audio's headers say: real files of each kind, headers that lie, and bytes that are no audio.

The files in audio/ hold half a second of a 300 Hz tone, written by libsndfile and FFmpeg; encoders add up to 0.1 s.
"""

from __future__ import annotations

import io
import random
import struct
import wave
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.encoders.audio_meter import AudioMeter
from gateway.uploads.durations import MAX_READS, RATES, Audio, examine_audio
from tests.quick import examples

AUDIO = Path(__file__).parents[1] / "sounds"
FILES = ["vbr.mp3", "cbr.mp3", "tone.flac", "opus.ogg", "vorbis.ogg", "end.m4a", "front.m4a", "tone.webm"]
KINDS = {"m4a": "mp4"}


def examine(data: bytes) -> Audio | None:
    reads = 0

    def read(offset: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        assert length <= 65_536
        return data[offset : offset + length]

    audio = examine_audio(read, len(data))
    assert reads <= MAX_READS + 2
    return audio


def wav(seconds: float, *, rate: int = 16_000, channels: int = 1, width: int = 2) -> bytes:
    buffer = io.BytesIO()
    with wave.open(buffer, "wb") as file:
        file.setparams((channels, width, rate, 0, "NONE", ""))
        file.writeframes(bytes(int(seconds * rate) * channels * width))
    return buffer.getvalue()


@pytest.mark.parametrize("name", FILES)
def test_type_and_duration_of_real_files_are_read(name: str) -> None:
    audio = examine((AUDIO / name).read_bytes())
    assert audio is not None
    kind = name.rpartition(".")[2]
    assert audio.kind == KINDS.get(kind, kind)
    assert audio.seconds == pytest.approx(0.55, abs=0.06)


@pytest.mark.parametrize(
    ("seconds", "form"),
    [(2.0, {}), (0.25, {"rate": 44_100, "channels": 2}), (3.0, {"rate": 8_000, "width": 1}), (1.0, {"width": 3})],
)
def test_duration_of_any_wav_form_is_read(seconds: float, form: dict[str, int]) -> None:
    assert examine(wav(seconds, **form)) == Audio("wav", cast("Any", pytest.approx(seconds, rel=0.001)))


def test_duration_of_a_wav_with_other_chunks_before_the_data_is_read() -> None:
    plain = wav(1.0)
    data = plain[:12] + b"LIST" + struct.pack("<I", 5) + b"INFO!\0" + plain[12:]
    assert examine(data) == Audio("wav", cast("Any", pytest.approx(1.0)))


@pytest.mark.parametrize("claim", [0, 0xFFFFFFFF])
def test_duration_of_a_streamed_wav_comes_from_its_size(claim: int) -> None:
    data = bytearray(wav(1.5))
    data[40:44] = claim.to_bytes(4, "little")
    assert examine(bytes(data)) == Audio("wav", cast("Any", pytest.approx(1.5)))


def test_duration_of_an_mp3_after_an_id3_tag_of_any_size_is_read() -> None:
    body = (AUDIO / "cbr.mp3").read_bytes()
    plain = examine(body)
    size = 300_000
    tag = b"ID3\x04\0\0" + bytes(size >> shift & 0x7F for shift in (21, 14, 7, 0)) + bytes(size)
    assert plain is not None
    assert examine(tag + body) == Audio("mp3", cast("Any", pytest.approx(plain.seconds)))


def test_declared_duration_is_bounded_by_the_file_size() -> None:
    data = bytearray(wav(10.0))
    for rate, bound in ((1, RATES["wav"][0]), (2**32 - 1, RATES["wav"][1])):
        data[24:28] = rate.to_bytes(4, "little")
        audio = examine(bytes(data))
        assert audio is not None
        assert audio.seconds == pytest.approx(len(data) / bound)


@pytest.mark.holds("prices.md#audio-2")
def test_wav_counts_by_sample_rate_and_block_whatever_byte_rate_it_claims() -> None:
    data = bytearray(wav(10.0))
    data[28:32] = (2**32 - 1).to_bytes(4, "little")
    assert examine(bytes(data)) == Audio("wav", cast("Any", pytest.approx(10.0)))
    data[32:34] = (65_535).to_bytes(2, "little")  # a block of one channel and 16 bits has two bytes
    assert examine(bytes(data)) == Audio("wav", cast("Any", pytest.approx(10.0)))


@pytest.mark.holds("prices.md#audio-3")
def test_compressed_wav_counts_at_its_highest_likely_rate_at_least() -> None:
    data = bytearray(wav(10.0))
    data[20:22] = (0x11).to_bytes(2, "little")  # ADPCM: a block has many samples
    for claim, seconds in ((0, 320_000 / 48_000), (2**32 - 1, 320_000 / 48_000), (8_000, 40.0)):
        data[28:32] = claim.to_bytes(4, "little")
        assert examine(bytes(data)) == Audio("wav", cast("Any", pytest.approx(seconds)))


@pytest.mark.holds("prices.md#audio-2")
def test_wav_counts_all_data_chunks_and_no_other() -> None:
    plain = wav(10.0)
    tagged = plain + b"LIST" + (40_000).to_bytes(4, "little") + bytes(40_000)
    assert examine(tagged) == Audio("wav", cast("Any", pytest.approx(10.0)))
    assert examine(plain + bytes(40_000)) == Audio("wav", cast("Any", pytest.approx(10.0)))
    twice = plain + b"data" + (32_000).to_bytes(4, "little") + bytes(32_000)
    assert examine(twice) == Audio("wav", cast("Any", pytest.approx(11.0)))


LIKELY = {"front.m4a": 64_000, "end.m4a": 64_000, "opus.ogg": 64_000, "tone.webm": 64_000, "tone.flac": 192_000}


def padded(name: str) -> bytes:
    """A file that claims half a second and has a megabyte more."""
    data = (AUDIO / name).read_bytes()
    at = data.rindex(b"OggS") if name.endswith("ogg") else len(data)
    return data[:at] + bytes(1_000_000) + data[at:]


@pytest.mark.holds("prices.md#audio-3")
@pytest.mark.parametrize("name", LIKELY)
def test_claim_that_cannot_be_checked_is_no_shorter_than_the_highest_likely_rate_makes_it(name: str) -> None:
    data = padded(name)
    audio = examine(data)
    assert audio is not None
    assert audio.seconds == pytest.approx(len(data) / LIKELY[name])


@pytest.mark.holds("prices.md#audio-3")
@pytest.mark.parametrize(
    ("name", "codec", "other", "rate"),
    [
        ("front.m4a", b"soun", b"vide", 4_000_000),
        ("end.m4a", b"mp4a", b"alac", 192_000),
        ("tone.webm", b"A_OPUS", b"V_OPUS", 4_000_000),
    ],
)
def test_films_and_lossless_sounds_may_have_more_bytes_a_second(
    name: str, codec: bytes, other: bytes, rate: int
) -> None:
    data = padded(name).replace(codec, other)
    audio = examine(data)
    assert audio is not None
    assert audio.seconds is not None
    assert audio.seconds == pytest.approx(max(0.55, len(data) / rate), abs=0.06)


@pytest.mark.parametrize(
    "data",
    [
        b"hello, this is no audio at all\n",
        "ein Text mit Umlauten: äöü".encode() * 40,
        b'{"text": "hello"}',
        b"<html><body>404</body></html>",
        b"%PDF-1.7\n%\xe2\xe3\xcf\xd3",
        b"\x89PNG\r\n\x1a\n" + bytes(50),
        b"\xff\xd8\xff\xe0\x00\x10JFIF" + bytes(50),
        b"PK\x03\x04" + bytes(50),
    ],
)
def test_other_file_types_are_not_audio(data: bytes) -> None:
    assert examine(data) is None


def test_unknown_bytes_are_classified_by_file_name() -> None:
    assert examine(bytes(1000)) == Audio()


@pytest.mark.parametrize("name", FILES)
def test_truncated_and_damaged_files_raise_no_error(name: str) -> None:
    data = (AUDIO / name).read_bytes()
    chance = random.Random(name)
    for _ in range(300):
        mangled = bytearray(data[: chance.randrange(len(data))])
        for _ in range(chance.randrange(4)):
            if mangled:
                mangled[chance.randrange(min(len(mangled), 400))] = chance.randrange(256)
        audio = examine(bytes(mangled))
        assert audio is None or audio.seconds is None or 0 < audio.seconds < 60


@settings(max_examples=examples(300), deadline=None)
@given(
    start=st.sampled_from(
        [b"RIFF\0\0\0\0WAVE", b"fLaC", b"OggS", b"\x1aE\xdf\xa3", b"\0\0\0\x18ftyp", b"ID3", b"\xff\xfb"]
    ),
    rest=st.binary(max_size=200),
)
def test_any_bytes_after_any_signature_raise_no_error(start: bytes, rest: bytes) -> None:
    audio = examine(start + rest)
    assert audio is None or audio.seconds is None or audio.seconds >= 0


# The meter -----------------------------------------------------------------------------------------------------------


def measured(data: bytes, format: str, *, step: int) -> AudioMeter:
    meter = AudioMeter(format)
    for start in range(0, len(data), step):
        meter.feed(data[start : start + step])
    return meter


@pytest.mark.holds("prices.md#audio-4")
@pytest.mark.parametrize("step", [1, 7, 4096])
@pytest.mark.parametrize(
    ("name", "format"), [("vbr.mp3", "mp3"), ("cbr.mp3", "mp3"), ("opus.ogg", "opus"), ("tone.aac", "aac")]
)
def test_meter_counts_real_files_split_at_any_point(name: str, format: str, step: int) -> None:
    meter = measured((AUDIO / name).read_bytes(), format, step=step)
    assert meter.exact
    assert meter.seconds == pytest.approx(0.55, abs=0.09)


@pytest.mark.parametrize("step", [1, 7, 4096])
def test_meter_counts_pcm_and_wav_by_their_rate(step: int) -> None:
    assert measured(bytes(72_000), "pcm", step=step).seconds == 1.5
    meter = measured(wav(1.5, rate=24_000), "wav", step=step)
    assert (meter.seconds, meter.exact) == (pytest.approx(1.5), True)


def test_meter_bounds_the_duration_by_the_lowest_bit_rate() -> None:
    page = b"OggS\0\4" + (48_000 * 10**9).to_bytes(8, "little") + bytes(13)  # thirty years
    meter = measured(page + bytes(973), "opus", step=4096)
    assert (meter.seconds, meter.exact, meter.impossible) == (1000 / 8_000, False, True)


@pytest.mark.parametrize("format", ["mp3", "wav", "aac", "opus", "flac"])
def test_meter_of_invalid_bytes_returns_a_marked_estimate(format: str) -> None:
    meter = measured(bytes(range(1, 256)) * 400, format, step=1000)
    assert meter.seconds > 0
    assert not meter.exact
