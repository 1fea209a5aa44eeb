"""A time limit for the first content of a stream: headers, comments and a role chunk are no content.

What comes before the content is held, so another target can still serve the call: a chunk that repeats the one before
only once, and up to `HELD_CHUNKS` or `HELD_BYTES`. With more the stream has begun, whatever is in it. Sharp edge: the
text fast path of the provider stays that of the stream.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Self, cast

import msgspec

from gateway.errors import UpstreamTimeout
from gateway.http_client.send_state import current
from gateway.plugins.text_fast_path import LanedStream
from gateway.routing.attempt_answers import note_usage
from gateway.schemas.chat_response import ChatChunk

HELD_CHUNKS = 256  # that differ and have no content, such as details of hidden reasoning
HELD_BYTES = 1 << 20  # of them as JSON


class _Prompt:
    """The chunks of a stream; the first ones come with its first content, or it fails."""

    def __init__(self, stream: AsyncIterator[ChatChunk], seconds: float) -> None:
        self._stream = stream
        self._seconds = seconds
        self._held: list[ChatChunk] | None = None  # in reverse order; None before the first content

    def __aiter__(self) -> Self:
        return self

    def __anext__(self) -> Awaitable[ChatChunk]:
        return self._next() if self._held or self._held is None else self._stream.__anext__()

    async def _next(self) -> ChatChunk:
        if self._held is None:
            self._held = (await self._first())[::-1]
        return self._held.pop()

    async def _first(self) -> list[ChatChunk]:
        """All chunks up to the first content, or as many as are held; StopAsyncIteration if there is none at all."""
        found: list[ChatChunk] = []
        held = 0  # bytes
        try:
            async with asyncio.timeout(self._seconds):
                async for chunk in self._stream:
                    if any(part.delta.continues or part.finish_reason is not None for part in chunk.choices):
                        found.append(chunk)
                        break
                    if found and chunk == found[-1]:
                        continue
                    found.append(chunk)
                    held += len(msgspec.json.encode(chunk))
                    if held >= HELD_BYTES or len(found) >= HELD_CHUNKS:
                        break
        except TimeoutError:
            for chunk in found:
                note_usage(current(), chunk.usage)  # of the prompt, which some upstreams count at once
            raise UpstreamTimeout(detail=f"no content within {self._seconds:g} s") from None
        if not found:
            raise StopAsyncIteration
        return found

    async def aclose(self) -> None:
        """End the stream."""
        aclose = getattr(self._stream, "aclose", None)
        if aclose is not None:
            await aclose()


class _LanedPrompt(_Prompt, LanedStream):
    """The same, with the text fast path of the stream."""

    def __init__(self, stream: LanedStream, seconds: float) -> None:
        _Prompt.__init__(self, stream, seconds)
        self.lane = stream.lane


def prompt(stream: AsyncIterator[ChatChunk], seconds: float) -> AsyncIterator[ChatChunk]:
    """The stream, which fails with UpstreamTimeout if it has no content within `seconds`."""
    if isinstance(stream, LanedStream):
        return cast("AsyncIterator[ChatChunk]", _LanedPrompt(stream, seconds))
    return _Prompt(stream, seconds)
