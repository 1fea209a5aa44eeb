"""Estimates before a call: text by classes, frames, tools, and media by the size their own headers claim."""

from __future__ import annotations

import base64
import io
import json
import struct
import time
import wave
import zlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.billing.image_tokens import media_rules
from gateway.billing.media_size import audio_seconds, image_size
from gateway.billing.token_estimate import (
    PER_TOOL,
    TOOLS,
    PromptEstimate,
    chat_prompt,
)
from gateway.schemas.chat_request import decode_chat_request

GPT_4O = media_rules(["gpt-4o"])


def estimate(*content: Any, factor: float = 1.0, **fields: Any) -> PromptEstimate:
    """The estimate of a request with one message for each content."""
    messages = [{"role": "user", "content": one} for one in content]
    body = json.dumps({"model": "m", "messages": messages, **fields}, ensure_ascii=False).encode()
    return chat_prompt(decode_chat_request(body), factor=factor, rules=GPT_4O)


def data_url(raw: bytes, kind: str = "png") -> str:
    return f"data:image/{kind};base64,{base64.b64encode(raw).decode()}"


def png(width: int, height: int) -> bytes:
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + head
    return (
        b"\x89PNG\r\n\x1a\n" + struct.pack(">I", len(head)) + chunk + struct.pack(">I", zlib.crc32(chunk)) + b"\0" * 40
    )


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + b"\0" * 40


def jpeg(width: int, height: int, *, before: int = 0) -> bytes:
    """A JPEG whose size stands behind `before` bytes of profiles."""
    raw = b"\xff\xd8\xff\xe0" + struct.pack(">H", 16) + b"JFIF".ljust(14, b"\0")
    while before > 0:
        size = min(before, 60_000)
        raw += b"\xff\xe2" + struct.pack(">H", size + 2) + b"\0" * size
        before -= size
    return raw + b"\xff\xc2" + struct.pack(">HBHHB", 17, 8, height, width, 3) + b"\0" * 200


def webp(kind: bytes, width: int, height: int) -> bytes:
    body = {
        b"VP8X": b"\x10\0\0\0" + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little"),
        b"VP8L": b"\x2f" + ((width - 1) | (height - 1) << 14).to_bytes(4, "little"),
        b"VP8 ": b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height),
    }[kind]
    return b"RIFF\0\0\0\0WEBP" + kind + struct.pack("<I", len(body)) + body + b"\0" * 40


def wav(seconds: float, rate: int = 16_000, channels: int = 1) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(b"\0" * int(seconds * rate) * 2 * channels)
    return out.getvalue()


# Text and frames -----------------------------------------------------------------------------------------------------


def test_text_costs_a_quarter_token_for_each_byte() -> None:
    assert estimate("abcd" * 10).text == estimate("").text + 10
    assert estimate("abcd" * 10, factor=1.5).text == pytest.approx(estimate("").text * 1.5 + 15, abs=1)


def test_message_costs_more_than_its_frame_in_published_formulas() -> None:
    assert estimate("", "").text - estimate("").text >= 4


def test_text_parts_are_counted_like_text() -> None:
    part = estimate([{"type": "text", "text": "abcd" * 10}]).text - estimate([{"type": "text", "text": ""}]).text
    assert part == 10


@pytest.mark.holds("prices.md#estimates-3")
def test_tools_and_schemas_are_counted_by_their_json_text() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with_tool = estimate("abcd", tools=[tool]).text - estimate("abcd").text
    size = len(', "tools": ' + json.dumps([tool]))
    assert with_tool == pytest.approx(size / 4 + TOOLS + PER_TOOL, abs=1)
    legacy = estimate("abcd", functions=[tool["function"]]).text - estimate("abcd").text
    assert legacy > TOOLS + PER_TOOL
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    assert estimate("abcd", response_format=schema).text > estimate("abcd").text + 15


@given(st.lists(st.text(), min_size=1, max_size=5))
def test_estimate_never_decreases_when_text_is_added(texts: list[str]) -> None:
    assert estimate(*texts).tokens <= estimate(*texts, "more").tokens


# Images --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("width", "height", "tokens"),
    [(512, 512, 255), (1024, 1024, 765), (2048, 4096, 1105), (1, 1, 255), (100_000, 100, 765), (2048, 768, 1445)],
)
def test_image_costs_its_tiles(width: int, height: int, tokens: int) -> None:
    assert GPT_4O.image((width, height), None) == tokens


@given(st.integers(1, 2**31), st.integers(1, 2**31))
def test_no_image_costs_more_than_eight_tiles(width: int, height: int) -> None:
    assert 255 <= GPT_4O.image((width, height), None) <= 85 + 8 * 170


@pytest.mark.holds("prices.md#estimates-20")
@pytest.mark.parametrize(
    "raw",
    [
        png(640, 480),
        gif(640, 480),
        jpeg(640, 480),
        jpeg(640, 480, before=90_000),
        webp(b"VP8X", 640, 480),
        webp(b"VP8L", 640, 480),
        webp(b"VP8 ", 640, 480),
    ],
    ids=["png", "gif", "jpeg", "jpeg with a profile", "webp extended", "webp lossless", "webp"],
)
def test_size_is_read_from_the_header(raw: bytes) -> None:
    assert image_size(data_url(raw)) == (640, 480)


@pytest.mark.parametrize(
    "url",
    [
        "https://example.com/a.png",
        "data:image/png;base64,",
        "data:image/png;base64,!!!!",
        "data:image/png;base64,漢字漢字",
        "data:," + "x" * 500,
        data_url(b"BM" + b"\0" * 60),
        data_url(png(0, 5)),
        data_url(png(5, 5)[:10]),
        data_url(jpeg(5, 5)[:12]),
        data_url(jpeg(5, 5, before=200_000)),
        data_url(b"\xff\xd8" + b"\xff\xe0\0\0" * 10_000),
    ],
)
def test_size_that_cannot_be_read_is_unknown(url: str) -> None:
    assert image_size(url) is None


@given(
    st.binary(max_size=400), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8", b"GIF87a", b"RIFF0000WEBPVP8X"])
)
def test_invalid_images_of_any_kind_are_estimated(rest: bytes, start: bytes) -> None:
    size = image_size(data_url(start + rest))
    assert size is None or min(size) > 0


def image(raw: bytes, detail: str | None = None) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(raw), **({"detail": detail} if detail else {})}}


def test_images_of_a_prompt_are_counted_separately_from_its_text() -> None:
    found = estimate([{"type": "text", "text": "abcd"}, image(png(1024, 1024)), image(png(4000, 4000), "low")])
    assert (found.image, found.media) == (765 + 85, 2)
    outside = {"type": "image_url", "image_url": {"url": "https://a.de"}}
    assert abs(estimate([{"type": "text", "text": "abcd"}, outside, outside]).text - found.text) < 10


@pytest.mark.holds("prices.md#estimates-19")
def test_image_of_unknown_size_costs_the_documented_default() -> None:
    url = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert estimate([url]).image == 1_105


# Sound and documents -------------------------------------------------------------------------------------------------


@pytest.mark.holds("prices.md#audio-1")
@pytest.mark.parametrize(("rate", "channels"), [(16_000, 1), (44_100, 2), (8_000, 1)])
def test_length_of_a_wav_is_read_from_its_header(rate: int, channels: int) -> None:
    seconds = audio_seconds(base64.b64encode(wav(3, rate, channels)).decode())
    assert seconds == pytest.approx(3, rel=0.01)


@pytest.mark.holds("prices.md#audio-1")
def test_length_of_an_mp3_is_read_from_its_first_frame() -> None:
    raw = b"\xff\xfb\x90\x00" + b"\0" * 48_000  # MPEG 1 layer III at 128 kbit/s
    assert audio_seconds(base64.b64encode(raw).decode()) == pytest.approx(3, rel=0.01)


def sound(raw: bytes, kind: str = "wav") -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(raw).decode(), "format": kind}}


@pytest.mark.holds("prices.md#estimates-5", "prices.md#audio-1")
def test_sound_costs_ten_tokens_a_second() -> None:
    assert estimate([sound(wav(6))]).audio == pytest.approx(60, abs=2)


@pytest.mark.holds("prices.md#audio-1")
def test_audio_without_a_usable_header_counts_as_64_kbit() -> None:
    assert estimate([sound(b"ID3" + b"\0" * 48_000, "mp3")]).audio == pytest.approx(60, abs=2)


@pytest.mark.holds("prices.md#audio-1")
def test_byte_rate_that_is_a_lie_shortens_no_sound() -> None:
    raw = wav(60, 16_000)
    lie = raw[:28] + struct.pack("<I", 2**32 - 1) + raw[32:]
    assert estimate([sound(lie)]).audio == pytest.approx(600, abs=2)


@pytest.mark.holds("prices.md#estimates-7")
def test_document_costs_a_token_for_three_bytes() -> None:
    part = {"type": "file", "file": {"file_data": "data:text/plain;base64," + "A" * 4000, "filename": "a.txt"}}
    empty = {"type": "file", "file": {"file_data": "data:,", "filename": "a.txt"}}
    assert estimate([part]).text == pytest.approx(1000 + estimate([part | empty]).text, abs=10)


# Time ----------------------------------------------------------------------------------------------------------------

MIB = 2**20
# With as many objects as a large body may have.
BODIES: dict[str, Callable[[], list[Any]]] = {
    "ascii": lambda: ["a" * (31 * MIB)],
    "cjk": lambda: ["漢" * (10 * MIB)],
    "escaped parts": lambda: [[{"type": "text", "text": "漢"}] * 4900] * 4,
    "empty parts": lambda: [[{"type": "text", "text": ""}] * 4900] * 4,
    "images": lambda: [[image(jpeg(5, 5)[:30])] * 4900] * 2,
    "large images": lambda: [[image(jpeg(5, 5, before=200_000))] * 80],
    "messages": lambda: ["a"] * 19_900,
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BODIES)
def test_worst_bodies_are_estimated_within_three_times_their_decoding_time(name: str) -> None:
    messages = [{"role": "user", "content": content} for content in BODIES[name]()]
    body = json.dumps({"model": "m", "messages": messages}, ensure_ascii=name == "escaped parts").encode()
    assert len(body) <= 32 * MIB
    request = decode_chat_request(body)
    estimating = min(_seconds(lambda: chat_prompt(request)) for _ in range(3))
    decoding = min(_seconds(lambda: decode_chat_request(body)) for _ in range(3))
    assert estimating < 3 * decoding  # it was 0.9 times at most


def _seconds(work: Callable[[], object]) -> float:
    """Seconds of this thread's processor: other processes do not count."""
    started = time.thread_time()
    work()
    return time.thread_time() - started
