"""Inflates a gzip body in threads and in steps, and limits its size and its ratio.

The first 64 KiB are inflated without further checks. Beyond them, a body may be at most `MOST_RATIO` times as large as
its compressed bytes: real requests reach 20, a decompression bomb 1,000.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.errors import GatewayError, InvalidJSON, RequestTooLarge

FREE: Final = 65_536  # bytes that are inflated whatever the ratio, and before a key is confirmed
STEP: Final = 262_144  # most bytes of one step in a thread
INPUT: Final = 65_536  # compressed bytes of one step; zlib copies what a step does not consume
MOST_RATIO: Final = 100


class BodyInflater:
    """Inflates one body of at most `most` bytes; `invalid` is the class of the errors about its form."""

    __slots__ = ("_consumed", "_inflater", "_invalid", "_most", "size")

    def __init__(self, most: int, invalid: type[GatewayError] = InvalidJSON) -> None:
        self._inflater = zlib.decompressobj(wbits=31)
        self._invalid = invalid
        self._most = most
        self._consumed = 0  # compressed bytes
        self.size = 0  # inflated bytes

    async def feed(self, data: bytes, take: Callable[[bytes], Awaitable[None]]) -> None:
        """Inflate more compressed bytes; `take` gets at most `FREE` bytes, then at most `STEP` bytes at a time."""
        for start in range(0, len(data), INPUT):
            rest = data[start : start + INPUT]
            while rest:
                plain = await self._step(rest)
                self._consumed += len(rest) - len(self._inflater.unconsumed_tail)
                rest = self._inflater.unconsumed_tail
                self._check(plain)
                if plain:
                    await take(plain)

    @property
    def complete(self) -> bool:
        """Whether the end of the gzip data was read."""
        return self._inflater.eof

    async def _step(self, data: bytes) -> bytes:
        try:
            if self.size < FREE:
                return self._inflater.decompress(data, FREE - self.size)
            return await asyncio.to_thread(self._inflater.decompress, data, STEP)
        except zlib.error:
            raise self._invalid("The request body is not valid gzip") from None

    def _check(self, plain: bytes) -> None:
        self.size += len(plain)
        if self._inflater.unused_data:  # zlib would copy it at each step: 26 MB in steps of 64 KB took 3.5 s
            raise self._invalid("The request body has bytes after the end of its gzip data")
        if self.size > self._most:
            raise RequestTooLarge()
        if self.size > FREE and self.size > MOST_RATIO * self._consumed:
            raise RequestTooLarge(f"The request body is more than {MOST_RATIO} times as large as its gzip data")

    def finish(self) -> None:
        """Check that the gzip data are complete."""
        if not self.complete:
            raise self._invalid("The request body is truncated gzip")
