"""Amazon's binary event stream: length-prefixed frames with two checksums, read in pieces of any size.

::

    decoder = FrameDecoder()
    for frame in decoder.feed(chunk): ...    # every frame that `chunk` completes
    decoder.end()                            # at the end of the body: raises if it ended inside a frame

A frame is: total length, length of its headers, CRC-32 of those eight bytes, headers, payload, CRC-32 of all before;
numbers are big-endian. A length is believed only once its own checksum fits, so a damaged one never makes us wait.
Sharp edges: a checksum that does not fit means that bytes are missing, which is a truncated stream and no invalid one;
and `feed` is a generator, which does nothing until it is gone through, and must be to its end.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from zlib import crc32

from msgspec import Struct

from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated

MAX_FRAME_BYTES = 16 * 1024 * 1024 + 128 * 1024  # what AWS allows a payload and its headers
PRELUDE = 12  # bytes: both lengths and their checksum
AROUND = PRELUDE + 4  # bytes of a frame that are neither headers nor payload

_prelude = struct.Struct(">III")
_checksum = struct.Struct(">I")
_short = struct.Struct(">H")

_STRING = 7
# Sizes of header values by type, where the type fixes them: true, false, byte, short, int, long, timestamp, UUID.
_FIXED = {0: 0, 1: 0, 2: 1, 3: 2, 4: 4, 5: 8, 8: 8, 9: 16}
_COUNTED = frozenset({6, _STRING})  # bytes and text, each behind a length of two bytes


class Frame(Struct, frozen=True, gc=False):
    """One message of the stream; of its headers those that are text, which are all that Bedrock sends."""

    headers: dict[str, str]
    payload: bytes


class FrameDecoder:
    """An incremental decoder; one per stream."""

    def __init__(self) -> None:
        self._rest = bytearray()  # the frame under way
        self._wanted = PRELUDE  # bytes that `_rest` must hold before there is anything to do

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that `chunk` completes, in order; a damaged one raises after those before it were given."""
        rest = self._rest
        rest += chunk
        at = 0
        while len(rest) - at >= self._wanted:
            self._wanted, headers = _read_prelude(rest, at)
            end = at + self._wanted
            if len(rest) < end:
                break
            yield _read_frame(bytes(rest[at:end]), headers)
            at, self._wanted = end, PRELUDE
        del rest[:at]

    def end(self) -> None:
        """Say that the body has ended; UpstreamTruncated when a frame has not."""
        if self._rest:
            raise UpstreamTruncated(detail=f"{len(self._rest)} bytes of an unfinished frame")


def _read_prelude(data: bytearray, at: int) -> tuple[int, int]:
    """Length of the frame at `at`, and of its headers."""
    total, headers, checksum = _prelude.unpack_from(data, at)
    if crc32(data[at : at + 8]) != checksum:
        raise UpstreamTruncated(detail="the checksum of a frame's lengths does not fit")
    if total > MAX_FRAME_BYTES or headers > total - AROUND:
        raise UpstreamInvalidResponse(detail=f"a frame of {total} bytes with {headers} bytes of headers")
    return total, headers


def _read_frame(data: bytes, headers: int) -> Frame:
    """The frame that `data` is."""
    end = len(data) - 4
    (checksum,) = _checksum.unpack_from(data, end)
    with memoryview(data) as view:
        if crc32(view[:end]) != checksum:
            raise UpstreamTruncated(detail="the checksum of a frame does not fit")
    start = PRELUDE + headers
    return Frame(_read_headers(data[PRELUDE:start]), data[start:end])


def _read_headers(data: bytes) -> dict[str, str]:
    found: dict[str, str] = {}
    at = 0
    try:
        while at < len(data):
            at, name = at + 1 + data[at], data[at + 1 : at + 1 + data[at]]
            kind, at = data[at], at + 1
            if kind in _COUNTED:
                (size,) = _short.unpack_from(data, at)
                at += 2
            else:
                size = _FIXED[kind]
            if at + size > len(data):
                raise IndexError
            if kind == _STRING:
                found[name.decode()] = data[at : at + size].decode()
            at += size
    except (IndexError, KeyError, struct.error, UnicodeDecodeError):
        raise UpstreamInvalidResponse(detail="headers of a frame that cannot be read") from None
    return found
