"""A lane for plain text beside a provider's stream: from the socket to the client without waking anybody between.

A provider that can tell from an event's bytes that it is like an earlier chunk but for its text returns::

    lane = TextLane()
    return LanedStream(self._chunks(request, target, lane), lane)

and offers such text to `lane.take`, which is None while the lane is closed, as it is before the first words have
reached the client. Most chunks of a stream go this way: 3 µs each where a chunk through generators and tasks takes 7.
Sharp edge: what `take` refuses must be yielded as chunks, and never both.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable

from gateway.schemas.chat_response import ChatChunk


class TextLane:
    """Where to offer text; opened and closed by whoever reads the stream."""

    __slots__ = ("take",)

    def __init__(self) -> None:
        #: Takes the texts of chunks that are otherwise as the given one, which was yielded before; or refuses them all.
        self.take: Callable[[ChatChunk, list[str]], bool] | None = None


class LanedStream:
    """A stream of chunks, and the lane beside it; whoever knows nothing of lanes iterates over it like any other."""

    def __init__(self, chunks: AsyncGenerator[ChatChunk], lane: TextLane) -> None:
        self.lane = lane
        self._chunks = chunks

    def __aiter__(self) -> LanedStream:
        return self

    def __anext__(self) -> Awaitable[ChatChunk]:
        return self._chunks.__anext__()

    def aclose(self) -> Awaitable[None]:
        """End the stream."""
        return self._chunks.aclose()
