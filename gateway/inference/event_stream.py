"""An event stream on its way to one client: back-pressure, keep-alive comments, an honest end.

`EventStream` holds the status back until there is something to send, because only an uncommitted answer can still
become a true HTTP error. `Pulse` is the one timer all streams of a worker share: it commits an answer that stays
silent too long and sends comments into idle ones, which also finds out clients that left without a word. Sharp edge:
`fail` cuts the connection without a terminator on purpose; a clean end means a complete answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from gateway.sse import COMMENT_KEEPALIVE

if TYPE_CHECKING:
    from gateway.api.handler import BaseHandler
    from gateway.inference.idempotency import Claim

SSE_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Connection": "keep-alive",
}


BEAT = 1.0  # seconds


class Pulse:
    """Looks at every open stream once a second."""

    def __init__(self, *, commit_after: float, keep_alive: float) -> None:
        self.commit_after = commit_after  # seconds of silence before the headers are committed
        self.keep_alive = keep_alive  # seconds of silence between comments
        self._streams: set[EventStream] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, stream: EventStream) -> None:
        """Watch `stream` until it ends."""
        self._streams.add(stream)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BEAT, self._beat)

    def discard(self, stream: EventStream) -> None:
        """Stop watching."""
        self._streams.discard(stream)

    def _beat(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for stream in list(self._streams):
            stream.tick(now, self)
        if self._streams:
            self._timer = loop.call_later(BEAT, self._beat)


class EventStream:
    """One SSE answer of one handler."""

    # Slots here and in all that a chunk passes: with 1,000 open streams each chunk finds the objects of its own out of
    # the caches, and a dict is one more of them.
    __slots__ = (
        "_answer_headers",
        "_claim",
        "_exchange",
        "_handler",
        "_headers",
        "_pulse",
        "_quiet_since",
        "_spoke",
        "committed",
    )

    def __init__(self, handler: BaseHandler, pulse: Pulse, *, claim: Claim | None = None) -> None:
        # Let go of at the end: the handler knows this stream, and a cycle leaves the request, its body included, to the
        # garbage collector: 30 objects a stream, and a worker of 61 MB where 52 are enough, at 100 short streams.
        self._handler: BaseHandler | None = handler
        self._answer_headers = handler.answer_headers
        self._claim = claim  # keeps what was sent, for a retry with the same Idempotency-Key
        self._exchange = handler.exchange
        self._pulse = pulse
        self._spoke = False  # since the last beat of the pulse: cheaper than to look at the clock with each chunk
        self._quiet_since = asyncio.get_running_loop().time()  # as far as the pulse has seen
        self._headers = SSE_HEADERS
        self.committed = False
        pulse.add(self)

    def send(self, frames: bytes, on_written: Callable[[], object] | None = None) -> asyncio.Future[None] | None:
        """Write `frames`; the future, if any, is what to await before sending more.

        With `on_written` they go once all was read that arrived in this turn of the event loop, and it is called as
        they go.
        """
        if self._claim is not None:
            self._claim.keep(frames)
        self._spoke = True
        if not self.committed:
            assert on_written is None, "what goes first goes at once"
            return self._commit(frames)
        exchange = self._exchange
        future = exchange.write(frames) if on_written is None else exchange.write_soon(frames, on_written)
        return None if future.done() else future

    def _commit(self, frames: bytes) -> asyncio.Future[None] | None:
        self.committed = True
        handler = self._handler
        assert handler is not None, "the stream was closed"
        self._answer_headers.update(self._headers)
        handler.tell_time()
        handler.status = 200
        future = self._exchange.write_head(200, self._answer_headers, frames)
        if self._claim is None:  # which keeps them for a retry
            self._answer_headers.clear()
        return None if future.done() else future

    def finish(self, frames: bytes) -> None:
        """Write the last frames and end the answer as complete."""
        self.send(frames)
        if self._claim is not None:
            self._claim.complete(200, self._answer_headers)
        self._exchange.finish()
        self.close()

    def fail(self, frame: bytes) -> None:
        """Write one error frame and cut the connection, so that nobody takes the answer for whole."""
        self.send(frame)
        self._exchange.abort()
        self.close()

    def close(self) -> None:
        """Nothing more will be sent."""
        self._pulse.discard(self)
        self._handler = None

    def tick(self, now: float, pulse: Pulse) -> None:
        """A second has passed."""
        if self._spoke:
            self._spoke, self._quiet_since = False, now
        # Half a beat less where beats are counted, for they are never exactly one apart.
        limit = pulse.keep_alive - BEAT / 2 if self.committed else pulse.commit_after
        if now - self._quiet_since >= limit:
            self._quiet_since = now
            if self.committed:
                self._exchange.write(COMMENT_KEEPALIVE)
            else:
                self._commit(COMMENT_KEEPALIVE)


class ByteStream(EventStream):
    """One answer of another media type, sent as it comes: no room for comments, nor for an error once it began."""

    __slots__ = ()

    def __init__(self, handler: BaseHandler, pulse: Pulse, *, media_type: str, claim: Claim | None = None) -> None:
        super().__init__(handler, pulse, claim=claim)
        self._headers = {"Content-Type": media_type}

    def fail(self, frame: bytes) -> None:
        """Cut the connection before the end of the body: the one way to say that something is missing."""
        self.close()
        self._exchange.abort()

    def tick(self, now: float, pulse: Pulse) -> None:
        """Silence says nothing here."""
