"""Where a streamed answer goes: an event stream or bytes, with keep-alive comments.

A sink delays the status until there is something to send, because only an uncommitted answer can still become an HTTP
error. `KeepAlive` is one timer for all streams of a worker. It commits an answer that is silent for too long and sends
comments into idle streams, which also detects clients that are gone. Sharp edge: `fail` cuts the connection without a
terminator on purpose, because a regular end means a complete answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

from gateway.http_server.reply import ResponseWriter
from gateway.inference.idempotency import Claim
from gateway.sse import COMMENT_KEEPALIVE

SSE_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache, no-transform",
    "X-Accel-Buffering": "no",
    "Connection": "keep-alive",
}
TICK = 1.0  # seconds


class KeepAlive:
    """Calls `tick` of every open stream once a second."""

    def __init__(self, *, commit_after: float, comment_after: float) -> None:
        self.commit_after = commit_after  # seconds of silence before the headers are committed
        self.comment_after = comment_after  # seconds of silence between comments
        self._sinks: set[EventSink] = set()
        self._timer: asyncio.TimerHandle | None = None

    def add(self, sink: EventSink) -> None:
        """Watch `sink` until it ends."""
        self._sinks.add(sink)
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TICK, self._tick)

    def discard(self, sink: EventSink) -> None:
        """Stop watching."""
        self._sinks.discard(sink)

    def _tick(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        now = loop.time()
        for sink in list(self._sinks):
            sink.tick(now, self)
        if self._sinks:
            self._timer = loop.call_later(TICK, self._tick)


class EventSink:
    """One answer as an event stream."""

    # Slots, here and in all objects that a chunk uses: with 1,000 open streams these objects are not in the CPU caches,
    # and a dict would be one more of them.
    __slots__ = (
        "_claim", "_comment", "_exchange", "_headers", "_keep_alive", "_quiet_since", "_reply", "committed", "sent",
    )  # fmt: skip

    def __init__(
        self,
        reply: ResponseWriter,
        keep_alive: KeepAlive,
        *,
        claim: Claim | None = None,
        headers: Mapping[str, str] = SSE_HEADERS,
        comment: bytes = COMMENT_KEEPALIVE,
    ) -> None:
        self._reply = reply
        self._claim = claim  # stores what was sent, for a retry with the same Idempotency-Key
        self._exchange = reply.exchange
        self._keep_alive = keep_alive
        self.sent = False  # since the last tick; cheaper than reading the clock at each chunk
        self._quiet_since = asyncio.get_running_loop().time()  # exact to a tick
        self._headers = headers
        self._comment = comment  # what keeps a silent stream alive
        self.committed = False
        keep_alive.add(self)

    def send(self, frames: bytes) -> asyncio.Future[None] | None:
        """Write `frames`; await the returned future, if any, before sending more."""
        if self._claim is not None:
            self._claim.keep(frames)
        self.sent = True
        if not self.committed:
            return self._commit(frames)
        future = self._exchange.write(frames)
        return None if future.done() else future

    def chunk_writer(self) -> Callable[[bytes], asyncio.Future[None] | None] | None:
        """A function that writes frames as `send` does, with less work; None where `send` has more to do.

        Its caller sets `sent` and does not call it once the client has disconnected.
        """
        return self._exchange.chunk_writer() if self._claim is None and self.committed else None

    def _commit(self, frames: bytes) -> asyncio.Future[None] | None:
        self.committed = True
        headers = self._reply.headers
        headers.update(self._headers)
        future = self._reply.begin(200, frames)
        if self._claim is None:  # a claim stores them for a retry
            headers.clear()
        return None if future.done() else future

    def finish(self, frames: bytes) -> None:
        """Write the last frames and end the answer as complete."""
        self.send(frames)
        if self._claim is not None:
            self._claim.complete(200, self._reply.headers)
        self._exchange.finish()
        self.close()

    def fail(self, frame: bytes) -> None:
        """Write one error frame and cut the connection, so that the answer does not look complete."""
        self.send(frame)
        self._exchange.abort()
        self.close()

    def close(self) -> None:
        """Stop the keep-alive comments; nothing more is sent."""
        self._keep_alive.discard(self)

    def tick(self, now: float, keep_alive: KeepAlive) -> None:
        """Called once a second; commits or comments after too much silence."""
        if self.sent:
            self.sent, self._quiet_since = False, now
        # Half a tick less, because ticks are never exactly a second apart.
        limit = keep_alive.comment_after - TICK / 2 if self.committed else keep_alive.commit_after
        if now - self._quiet_since >= limit:
            self._quiet_since = now
            if self.committed:
                self._exchange.write(self._comment)
            else:
                self._commit(self._comment)


class ByteSink(EventSink):
    """One answer of another media type, sent as it arrives: no comments, and no error frame."""

    __slots__ = ("media_type",)

    def __init__(
        self, reply: ResponseWriter, keep_alive: KeepAlive, *, media_type: str, claim: Claim | None = None
    ) -> None:
        super().__init__(reply, keep_alive, claim=claim)
        self.media_type = media_type  # may change until the headers are committed

    def _commit(self, frames: bytes) -> asyncio.Future[None] | None:
        self._headers = {"Content-Type": self.media_type}
        return super()._commit(frames)

    def fail(self, frame: bytes) -> None:
        """Cut the connection before the end of the body, which is how the client detects an incomplete answer."""
        self.close()
        self._exchange.abort()

    def tick(self, now: float, keep_alive: KeepAlive) -> None:
        """Send nothing: bytes of a media type have no comments."""
