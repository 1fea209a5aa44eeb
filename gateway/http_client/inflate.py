"""Decompresses answers of servers that compress although they were asked not to, one step at a time.

`feed` takes arrived bytes; `step` returns at most `STEP` decompressed bytes, or b"" if more must arrive.
Sharp edge: the caller limits the decompressed bytes. Limited here are their ratio to the compressed ones, bytes
after the end of the data, and data that decompress to nothing.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Final

from gateway.errors import UpstreamInvalidResponse

if TYPE_CHECKING:
    from zlib import _Decompress  # has no public name

STEP: Final = 128 * 1024
GZIP: Final = 16 + zlib.MAX_WBITS
FREE: Final = 1024 * 1024  # bytes that are decompressed whatever the ratio
MOST_RATIO: Final = 100  # real answers reach 30, and zlib at most 1,030
MAX_EMPTY: Final = 64 * 1024  # compressed bytes in a row that may decompress to nothing, such as a long header


class Inflater:
    """One body in a content coding: gzip or deflate. Any other coding is refused when its first bytes arrive."""

    __slots__ = ("_coding", "_consumed", "_empty", "_inflate", "_size", "_waiting")

    def __init__(self, coding: str) -> None:
        self._coding = coding.strip().lower()
        self._inflate: _Decompress | None = None
        self._waiting = b""
        self._consumed = 0  # compressed bytes
        self._size = 0  # decompressed bytes
        self._empty = 0  # bytes since the last step that returned some

    @property
    def complete(self) -> bool:
        """Whether the compressed data have reached their end or have not begun."""
        return self._inflate is None or self._inflate.eof

    def feed(self, piece: bytes) -> None:
        """Add arrived bytes."""
        self._waiting += piece

    def step(self) -> bytes:
        """The next bytes, as far as they have arrived; UpstreamInvalidResponse for data that is not compressed so."""
        if self._inflate is None:
            if not self._waiting:
                return b""
            self._inflate = self._begin(self._waiting[0])
        if self._inflate.eof:
            self._check_end()
            return b""
        before = len(self._waiting)
        try:
            step = self._inflate.decompress(self._waiting, STEP)
        except zlib.error as error:
            raise UpstreamInvalidResponse(detail=f"{self._coding}: {error}") from None
        self._waiting = self._inflate.unconsumed_tail or self._inflate.unused_data
        consumed = before - len(self._waiting)
        self._consumed += consumed
        self._size += len(step)
        if self._size > FREE and self._size > MOST_RATIO * self._consumed:
            raise UpstreamInvalidResponse(detail=f"{self._coding}: over {MOST_RATIO} times its compressed size")
        self._empty = 0 if step else self._empty + consumed
        if self._empty > MAX_EMPTY:
            raise UpstreamInvalidResponse(detail=f"{self._coding}: {self._empty} bytes without content")
        if not step and self.complete:
            self._check_end()
        return step

    def _check_end(self) -> None:
        if self._waiting:
            raise UpstreamInvalidResponse(detail=f"{self._coding}: bytes after the end of the data")

    def _begin(self, first: int) -> _Decompress:
        if self._coding in {"gzip", "x-gzip"}:
            return zlib.decompressobj(GZIP)
        if self._coding == "deflate":
            # Many servers send "deflate" as RFC 1951, without the header of RFC 1950 that the standard requires.
            return zlib.decompressobj(zlib.MAX_WBITS if first & 15 == 8 else -zlib.MAX_WBITS)
        raise UpstreamInvalidResponse(detail=f"content coding {self._coding[:40]!r}, which was not asked for")
