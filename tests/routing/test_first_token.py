"""What comes before the first content of a stream is held up to a bound; beyond it the stream counts as begun."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from msgspec import Raw

from gateway.errors import UpstreamTimeout
from gateway.routing.first_token import HELD_BYTES, HELD_CHUNKS, prompt
from gateway.schemas.chat_response import ChatChunk, ChunkChoice, Delta

ROLE = ChatChunk(choices=[ChunkChoice(delta=Delta(role="assistant"))])


def details(size: int, number: int) -> ChatChunk:
    """A chunk without content that differs from the others, of at least `size` bytes."""
    text = Raw(b'[{"data":"%d%s"}]' % (number, b"x" * size))
    return ChatChunk(choices=[ChunkChoice(delta=Delta(reasoning_details=text))])


class Upstream:
    """Sends chunks, and then nothing more."""

    def __init__(self, chunks: list[ChatChunk]) -> None:
        self._chunks = chunks
        self.sent = 0

    async def stream(self) -> AsyncIterator[ChatChunk]:
        for chunk in self._chunks:
            self.sent += 1
            yield chunk
        await asyncio.Event().wait()


@pytest.mark.holds("routing.md#attempts-3")
@pytest.mark.parametrize(("size", "most"), [(0, HELD_CHUNKS), (HELD_BYTES // 8, 8)])
async def test_more_chunks_without_content_than_are_held_begin_the_stream(size: int, most: int) -> None:
    chunks = [details(size, number) for number in range(3 * HELD_CHUNKS)]
    upstream = Upstream(chunks)
    stream = prompt(upstream.stream(), 3600.0)
    assert await anext(stream) == chunks[0]
    assert upstream.sent == most
    assert [await anext(stream) for _ in range(2 * most)] == chunks[1 : 2 * most + 1]


@pytest.mark.holds("routing.md#attempts-3")
async def test_repeated_chunks_without_content_are_no_content_however_many_they_are() -> None:
    upstream = Upstream([ROLE] * 20 * HELD_CHUNKS)
    with pytest.raises(UpstreamTimeout):
        await anext(prompt(upstream.stream(), 0.2))
    assert upstream.sent == 20 * HELD_CHUNKS


async def test_repeated_chunks_are_passed_on_once() -> None:
    text = ChatChunk.text("Now")
    stream = prompt(Upstream([ROLE, *[ChatChunk()] * 3 * HELD_CHUNKS, text]).stream(), 3600.0)
    assert [await anext(stream) for _ in range(3)] == [ROLE, ChatChunk(), text]
