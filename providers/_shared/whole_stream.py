"""Between whole answers and streams: a whole answer that came as an event stream, and a whole one as a chunk.

Some servers stream whatever was asked for, and some do not stream. Sharp edge: an event takes many times the bytes of a
short one, so they are parsed piece by piece.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Protocol

from msgspec import UNSET

from gateway import ChatChunk, ChatCompletion, ChunkChoice, Delta, Event, EventParser, ToolCallDelta, fold_chat
from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated

MOST_EVENTS = 100_000
PIECE = 65_536  # bytes

_STARTS = (b"data:", b"event:", b"id:", b"retry:", b":")


def is_event_stream(body: bytes) -> bool:
    """Whether the body of an answer is events and no document."""
    return body[:1] != b"{" and body[:64].lstrip().startswith(_STARTS)


def events_of(body: bytes) -> Iterator[Event]:
    """The events of a whole body; UpstreamInvalidResponse if there are more than any whole answer has."""
    parser, count = EventParser(), 0
    for at in range(0, len(body), PIECE):
        for event in parser.feed(body[at : at + PIECE]):
            count += 1
            if count > MOST_EVENTS:
                raise UpstreamInvalidResponse(detail=f"a body of more than {MOST_EVENTS} events")
            yield event
    yield from parser.flush()


class EventReader(Protocol):
    """Reads the events of one dialect; `complete` is true after the last one."""

    complete: bool

    def read(self, event: Event) -> ChatChunk | None:
        """The chunk that an event amounts to, or None."""


def chunks_of(body: bytes, reader: EventReader) -> Iterator[ChatChunk]:
    """The chunks in the body of a stream that came whole; UpstreamTruncated if it has no end."""
    for event in events_of(body):
        chunk = reader.read(event)
        if chunk is not None:
            yield chunk
        if reader.complete:
            return
    raise UpstreamTruncated()


async def folded(chunks: Iterable[ChatChunk]) -> ChatCompletion:
    """The chunks as one answer; UpstreamTruncated if they have no end."""
    return await fold_chat(_one_by_one(chunks))


async def _one_by_one(chunks: Iterable[ChatChunk]) -> AsyncIterator[ChatChunk]:
    for chunk in chunks:
        yield chunk


def chunk_of(answer: ChatCompletion) -> ChatChunk:
    """The completion as a single chunk."""
    chunk = ChatChunk(system_fingerprint=answer.system_fingerprint, usage=answer.usage or UNSET)
    chunk.service_tier = answer.service_tier
    for choice in answer.choices:
        message = choice.message
        delta = Delta(content=message.content, refusal=message.refusal, reasoning_content=message.reasoning_content)
        delta.thinking_blocks = message.thinking_blocks
        if message.tool_calls:
            delta.tool_calls = [
                ToolCallDelta(
                    position, call.id, call.type, call.function, call.custom, extra_content=call.extra_content
                )
                for position, call in enumerate(message.tool_calls)
            ]
        chunk.choices.append(ChunkChoice(choice.index, delta, choice.logprobs, choice.finish_reason))
    return chunk
