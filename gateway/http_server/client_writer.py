"""The writing side of a client connection: back-pressure, and a client that does not read."""

from __future__ import annotations

import asyncio

from tornado.iostream import StreamClosedError

from gateway.http_server.server_state import ServerState


class ClientWriter:
    """Writes to one transport. The futures that it returns are done when few enough bytes are unsent."""

    __slots__ = ("_sent", "_sent_at", "_transport", "_waiters", "done", "paused", "written")

    def __init__(self, transport: asyncio.Transport, state: ServerState) -> None:
        self.paused = False  # whether the transport asked to wait
        self.written = 0  # bytes
        self._transport = transport
        self.done = state.done
        self._waiters: list[asyncio.Future[None]] = []
        self._sent = 0  # bytes sent at the last check; -1 if none were unsent
        self._sent_at = 0.0

    def push(self, data: bytes) -> None:
        """Write without asking for back-pressure."""
        self.written += len(data)
        self._transport.write(data)

    def send(self, data: bytes) -> asyncio.Future[None]:
        """Write; the future is done when few enough bytes are unsent."""
        self.written += len(data)
        self._transport.write(data)
        return self.flushed() if self.paused else self.done

    def send_chunk(self, data: bytes) -> asyncio.Future[None] | None:
        """Write a chunk of a chunked body; await the returned future, if any, before writing more."""
        chunk = b"%x\r\n%b\r\n" % (len(data), data)
        self.written += len(chunk)
        self._transport.write(chunk)
        return self.flushed() if self.paused else None

    def flushed(self) -> asyncio.Future[None]:
        """A future that is done when few enough bytes are unsent; in most cases it is done already."""
        if not self.paused:
            return self.done
        # One per caller: a caller that is cancelled cancels its future, and must not cancel another's.
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        return waiter

    def resume(self) -> None:
        """Complete the futures of waiting callers, who may write again."""
        self.paused = False
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self) -> None:
        """Fail the futures of waiting callers with StreamClosedError."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_exception(StreamClosedError())
                waiter.exception()

    def stalled(self, waiting: int, now: float, timeout: float) -> bool:
        """Whether none of the `waiting` unsent bytes was sent for more than `timeout` seconds."""
        if not waiting:
            self._sent = -1
            return False
        sent = self.written - waiting
        if sent != self._sent:
            self._sent, self._sent_at = sent, now
            return False
        return now - self._sent_at > timeout
