"""The event-stream decoder: botocore reads what we write and we read what it reads, however the bytes are cut."""

from __future__ import annotations

import io
import itertools
import struct
import zlib

import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError, UpstreamInvalidResponse, UpstreamTruncated
from gateway_providers.bedrock.event_stream import MAX_FRAME_BYTES, Frame, FrameDecoder
from tests.providers.converse_dialect import FIXTURES, event, frame, frames

STREAMS = sorted(path.name.removesuffix(".events.json") for path in FIXTURES.glob("*.events.json"))

names = st.text(min_size=1, max_size=30).filter(lambda name: len(name.encode()) < 256)
headers = st.dictionaries(names, st.text(max_size=50), max_size=6)
messages = st.lists(st.tuples(headers, st.binary(max_size=300)), max_size=5)


def decoded(data: bytes, cuts: list[int] | None = None) -> list[Frame]:
    """The frames in `data`, fed in pieces that end at `cuts`."""
    decoder = FrameDecoder()
    found: list[Frame] = []
    bounds = [0, *sorted(cut % (len(data) + 1) for cut in cuts or ()), len(data)]
    for start, end in itertools.pairwise(bounds):
        found += decoder.feed(data[start:end])
    decoder.end()
    return found


def read_by_botocore(data: bytes) -> list[Frame]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [Frame(dict(message.headers), message.payload) for message in buffer]


def reseal(message: bytes) -> bytes:
    """`message` with both checksums put right."""
    lengths, rest = message[:8], message[12:-4]
    whole = lengths + struct.pack(">I", zlib.crc32(lengths)) + rest
    return whole + struct.pack(">I", zlib.crc32(whole))


@pytest.mark.parametrize("name", STREAMS)
def test_botocore_and_the_decoder_read_the_same_from_a_stream(name: str) -> None:
    data = b"".join(frames(name))
    assert decoded(data) == read_by_botocore(data) != []


@given(messages, st.lists(st.integers(0, 10_000), max_size=8))
def test_random_splits_do_not_change_the_result(parts: list[tuple[dict[str, str], bytes]], cuts: list[int]) -> None:
    data = b"".join(frame(*part) for part in parts)
    assert decoded(data, cuts) == read_by_botocore(data) == [Frame(*part) for part in parts]


def test_every_single_split_gives_the_same_result() -> None:
    data = event("messageStart", role="assistant") + event("messageStop", stopReason="end_turn")
    whole = decoded(data)
    assert all(decoded(data, [cut]) == whole for cut in range(len(data)))
    assert decoded(data, list(range(len(data)))) == whole and len(whole) == 2


def test_headers_of_every_type_are_skipped_and_text_headers_kept() -> None:
    """The types and their sizes as botocore knows them."""
    values = {
        "yes": b"\0",
        "no": b"\1",
        "byte": b"\2\x7f",
        "short": b"\3\1\2",
        "int": b"\4\1\2\3\4",
        "long": b"\5" + bytes(8),
        "bytes": b"\6\0\3abc",
        "text": b"\7\0\2hi",
        "time": b"\x08" + bytes(8),
        "uuid": b"\x09" + bytes(16),
        "last": b"\7\0\3end",
    }
    block = b"".join(bytes([len(name)]) + name.encode() + value for name, value in values.items())
    message = reseal(struct.pack(">II", 16 + len(block) + 2, len(block)) + bytes(4) + block + b"{}" + bytes(4))
    assert decoded(message) == [Frame({"text": "hi", "last": "end"}, b"{}")]
    (theirs,) = read_by_botocore(message)
    assert set(theirs.headers) == set(values) and theirs.payload == b"{}"


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_any_flipped_bit_is_detected(place: int, bit: int) -> None:
    """In the lengths, the headers, the payload or either checksum: bytes are damaged, so the stream is truncated."""
    data = bytearray(event("contentBlockDelta", delta={"text": "Four."}, contentBlockIndex=0))
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(UpstreamTruncated):
        decoded(bytes(data))


@given(st.integers(1, 10_000))
def test_stream_that_ends_inside_a_frame_is_truncated(length: int) -> None:
    data = event("messageStop", stopReason="end_turn")
    with pytest.raises(UpstreamTruncated):
        decoded(data[: length % (len(data) - 1) + 1])


@given(st.binary(max_size=400), st.lists(st.integers(0, 400), max_size=4))
def test_random_bytes_raise_only_upstream_errors(data: bytes, cuts: list[int]) -> None:
    try:
        found = decoded(data, cuts)
    except GatewayError as error:
        assert isinstance(error, UpstreamTruncated | UpstreamInvalidResponse)
    else:
        assert data == b"" and found == []


@given(st.binary(max_size=60), st.integers(0, 80))
def test_random_frames_with_valid_checksums_raise_only_upstream_errors(inside: bytes, headers_length: int) -> None:
    """Both checksums fit, so what is wrong is inside."""
    lengths = struct.pack(">II", 16 + len(inside), headers_length)
    try:
        decoded(reseal(lengths + bytes(4) + inside + bytes(4)))
    except GatewayError as error:
        assert isinstance(error, UpstreamInvalidResponse)


@pytest.mark.parametrize(
    ("total", "headers_length"),
    [(MAX_FRAME_BYTES + 1, 0), (0xFFFFFFFF, 0), (0, 0), (15, 0), (16, 1), (100, 85), (100, 0xFFFFFFFF)],
)
def test_impossible_lengths_are_refused_before_anything_is_buffered(total: int, headers_length: int) -> None:
    lengths = struct.pack(">II", total, headers_length)
    with pytest.raises(UpstreamInvalidResponse):
        list(FrameDecoder().feed(lengths + struct.pack(">I", zlib.crc32(lengths))))


def test_frames_before_a_damaged_one_are_returned() -> None:
    good, bad = event("messageStart", role="assistant"), bytearray(event("messageStop", stopReason="end_turn"))
    bad[-1] ^= 1
    frames = FrameDecoder().feed(good + good + bytes(bad))
    assert [next(frames).payload for _ in range(2)] == [b'{"role":"assistant"}'] * 2
    with pytest.raises(UpstreamTruncated):
        next(frames)


def test_longest_allowed_frame_is_read_in_small_pieces() -> None:
    """16 MiB in pieces of 64 KiB: what is kept is searched once, not once for every piece."""
    payload = bytes(16 * 1024 * 1024)
    source = io.BytesIO(frame({":event-type": "x"}, payload))
    decoder = FrameDecoder()
    found = [one for piece in iter(lambda: source.read(65_536), b"") for one in decoder.feed(piece)]
    decoder.end()
    assert [one.payload == payload for one in found] == [True]
