"""The client's side of a text fast path: sends its texts and counts them like `relay` counts chunks.

It opens with the first content of an answer and closes with the stream. It refuses texts for which the relay would have
to wait: the hold must be extended, or the client reads slowly. Sharp edge: it runs inside the callback of the upstream
connection, so it must not wait and must be short.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.encoders.answer_encoder import AnswerEncoder
from gateway.inference.call import Call
from gateway.inference.hold_extension import HoldExtension
from gateway.inference.sinks import EventSink
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.text_fast_path import LanedStream, TextLane
from gateway.routing.delivered_text import DeliveredText
from gateway.schemas.chat_response import ChatChunk

KEPT = 4096  # quarter tokens whose texts are kept one by one, before a chunk goes through the relay


def open_fast_path(
    rest: object, call: Call, *, slot: Slot | None, limit: object, kept: DeliveredText | None = None
) -> TextRelay | None:
    """Open the fast path of `rest`, if it has one and the answer is a chat's; None otherwise.

    `kept` gets the texts.
    """
    encoder, sink = call.encoder, call.sink
    if not (isinstance(rest, LanedStream) and isinstance(encoder, AnswerEncoder)):
        return None
    assert slot is not None, "a chat has a slot in the inflight checkpoint"
    assert sink is not None
    assert isinstance(limit, HoldExtension)
    call.lane_units = encoder.delivered.text_quarter_tokens
    return TextRelay(rest.lane, call, encoder=encoder, sink=sink, slot=slot, extension=limit, kept=kept)


class TextRelay:
    """Takes the texts of one lane; `slow` is a future that the relay must await before it sends more."""

    __slots__ = (
        "_below", "_chunks", "_keep", "_kept", "_write", "call", "encoder", "extension", "lane", "sink", "slot", "slow",
    )  # fmt: skip

    def __init__(
        self,
        lane: TextLane,
        call: Call,
        *,
        encoder: AnswerEncoder,
        sink: EventSink,
        slot: Slot,
        extension: HoldExtension,
        kept: DeliveredText | None,
    ) -> None:
        self.lane, self.call, self.encoder, self.sink, self.slot = lane, call, encoder, sink, slot
        self.extension = extension
        self.slow: asyncio.Future[None] | None = None
        self._write: Callable[[bytes], asyncio.Future[None] | None] | None = None  # after the first text
        self._kept = kept
        # A bound method: with an attribute and a check of the length, a chunk took 1.037 of one that is not kept.
        self._keep = None if kept is None else kept.fast.extend
        self._below = self._next_below()
        self._chunks = 0  # added to the call when the lane closes: one object less per chunk
        lane.take = self._take

    def close(self) -> None:
        """Close the lane, which also breaks the reference cycle between the stream and its call."""
        self.lane.take = self._write = None
        self.call.lane_units = -1
        self.call.chunks += self._chunks if self._kept is None else self._kept.take_fast()
        self._chunks = 0

    def _take(self, sample: ChatChunk, texts: list[str]) -> bool:
        if self.slow is not None:
            return False
        encoder = self.encoder
        frames = encoder.feed_texts(sample, texts, self._below)
        if not frames:
            self._below = self._next_below()
            return False
        keep = self._keep
        if keep is None:
            self._chunks += len(texts)
        else:
            keep(texts)  # it counts them, too
        self.slot.delivered(encoder.delivered.text_quarter_tokens)
        write = self._write
        if write is None or self.call.detached:
            self.slow = self.sink.send(frames)
            self._write = self.sink.chunk_writer()
        else:
            self.sink.sent = True
            self.slow = write(frames)
        return True

    def _next_below(self) -> float:
        """The quarter tokens from which on the relay takes over for a chunk.

        The extension's changes only when reached, so an old value is only too low.
        """
        if self._kept is None:
            return self.extension.until
        return min(self.extension.until, self.encoder.delivered.text_quarter_tokens + KEPT)
