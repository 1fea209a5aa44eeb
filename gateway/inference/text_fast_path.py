"""The client's end of a text fast path: sends what comes along it, and counts it as `relay` counts a chunk.

Opened with the first words of an answer and closed with its stream. It refuses what the relay would have to wait for:
more money, or a client that reads slowly. Sharp edge: it runs inside the upstream connection's callback, so it must
neither wait nor be long.
"""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.encoders.chat import ChatStreamEncoder
from gateway.inference.call import Call
from gateway.inference.hold_extension import HoldExtension
from gateway.inference.sinks import EventSink
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.text_fast_path import LanedStream, TextLane
from gateway.schemas.chat_response import ChatChunk


def open_fast_path(rest: object, call: Call, *, slot: Slot | None, limit: object) -> TextRelay | None:
    """Open the fast path of the rest of a stream, if it has one and the answer is a chat's."""
    encoder, sink = call.encoder, call.sink
    if not (isinstance(rest, LanedStream) and isinstance(encoder, ChatStreamEncoder)):
        return None
    assert slot is not None, "chats note what they deliver"
    assert sink is not None
    assert isinstance(limit, HoldExtension)
    return TextRelay(rest.lane, call, encoder=encoder, sink=sink, slot=slot, extension=limit)


class TextRelay:
    """Takes text off one lane; `slow` is what the relay must await before it sends anything more."""

    __slots__ = ("_below", "_call", "_chunks", "_encoder", "_extension", "_lane", "_sink", "_slot", "slow")

    def __init__(
        self,
        lane: TextLane,
        call: Call,
        *,
        encoder: ChatStreamEncoder,
        sink: EventSink,
        slot: Slot,
        extension: HoldExtension,
    ) -> None:
        self._lane = lane
        self._call = call
        self._encoder = encoder
        self._sink = sink
        self._slot = slot
        self._extension = extension
        self._below = extension.until
        self._chunks = 0  # the call's are counted when the lane closes: it is one object less that a chunk must find
        self.slow: asyncio.Future[None] | None = None
        lane.take = self._take

    def close(self) -> None:
        """Nothing more comes this way; otherwise the stream and its call would hold each other."""
        self._lane.take = None
        self._call.chunks += self._chunks
        self._chunks = 0

    def _take(self, like: ChatChunk, texts: list[str]) -> bool:
        if self.slow is not None:
            return False
        encoder = self._encoder
        frames = encoder.more(like, texts, self._below)
        if not frames:
            self._below = self._extension.until  # which changes only when it was reached: an old one is merely early
            return False
        self._chunks += len(texts)
        written = partial(self._slot.delivered, encoder.delivered.text_quarter_tokens)
        self.slow = self._sink.send(frames, written)
        return True
