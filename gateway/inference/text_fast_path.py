"""The relay's end of a text lane: sends what comes along it, and counts it as the relay counts a chunk.

Opened with the first words of an answer and closed with its stream. It refuses what the relay would have to wait for:
more money, or a client that reads slowly. Sharp edge: it runs inside the upstream connection's callback, so it must
neither wait nor be long.
"""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.encoders.chat import ChatShaper
from gateway.inference.call import Call
from gateway.inference.event_stream import EventStream
from gateway.inference.hold_extension import Allowance
from gateway.ledger.inflight_checkpoint import Place
from gateway.plugins.text_fast_path import LanedStream, TextLane
from gateway.schemas.chat_response import ChatChunk


def open_lane(
    rest: object, call: Call, *, shaper: object, stream: EventStream, place: Place | None, allowance: object
) -> TextRelay | None:
    """Open the lane of the rest of a stream, if it has one and the answer is a chat's."""
    if not (isinstance(rest, LanedStream) and isinstance(shaper, ChatShaper) and isinstance(allowance, Allowance)):
        return None
    assert place is not None, "chats note what they deliver"
    return TextRelay(rest.lane, call, shaper=shaper, stream=stream, place=place, allowance=allowance)


class TextRelay:
    """Takes text off one lane; `slow` is what the relay must await before it sends anything more."""

    __slots__ = ("_allowance", "_below", "_call", "_chunks", "_lane", "_place", "_shaper", "_stream", "slow")

    def __init__(
        self, lane: TextLane, call: Call, *, shaper: ChatShaper, stream: EventStream, place: Place, allowance: Allowance
    ) -> None:
        self._lane = lane
        self._call = call
        self._shaper = shaper
        self._stream = stream
        self._place = place
        self._allowance = allowance
        self._below = allowance.until
        self._chunks = 0  # the call's are counted when the lane closes: it is one object less that a chunk must find
        self.slow: asyncio.Future[None] | None = None
        lane.take = self._take

    def close(self) -> None:
        """Nothing more comes this way; otherwise the stream and its handler would hold each other."""
        self._lane.take = None
        self._call.chunks += self._chunks
        self._chunks = 0

    def _take(self, like: ChatChunk, texts: list[str]) -> bool:
        if self.slow is not None:
            return False
        shaper = self._shaper
        frames = shaper.more(like, texts, self._below)
        if not frames:
            self._below = self._allowance.until  # which changes only when it was reached: an old one is merely early
            return False
        self._chunks += len(texts)
        self.slow = self._stream.send(frames, partial(self._place.delivered, shaper.delivered_units))
        return True
