"""The reading side of a client connection: passes bytes to the parser if the phase needs them, and holds the rest.

At most one read buffer of bytes is held. Reading is paused while that many are held.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from gateway.errors import GatewayError
from gateway.http_server.head import RequestHead
from gateway.http_server.parser import RequestParser
from gateway.http_server.phase import BODY, CLOSED, HEAD, LINGERING, SKIPPING, Phase
from gateway.http_server.server_state import ServerState


class Reads(Protocol):
    """The part of a connection that its reader calls."""

    def begin_request(self, head: RequestHead) -> None:
        """A head was read."""

    def body_arrived(self) -> None:
        """The parser has body bytes or the end of the body. A GatewayError refuses the request."""

    def refuse(self, error: GatewayError) -> None:
        """The bytes are not a valid request."""

    def reading_paused(self, *, paused: bool) -> None:
        """Reading was paused, or resumed."""


@dataclass(eq=False, repr=False, slots=True)
class RequestReader:
    """One per connection. The connection sets `phase`, and `transport` when it has one."""

    _connection: Reads
    _state: ServerState
    _loop: asyncio.AbstractEventLoop
    transport: asyncio.Transport = field(init=False)
    parser: RequestParser = field(init=False)
    phase: Phase = HEAD
    since: float = field(init=False)  # when the phase began, or when the first byte of the head arrived
    received: int = 0  # bytes
    held: bytearray | None = None
    paused: bool = False

    def __post_init__(self) -> None:
        state, limits = self._state, self._state.limits
        self.since = state.now
        self.parser = RequestParser(
            state.names, max_header_bytes=limits.max_header_bytes, max_header_count=limits.max_header_count
        )

    def enter(self, phase: Phase) -> None:
        """Begin a phase that needs bytes."""
        self.phase = phase
        self.since = self._state.now
        if self.held is not None:
            self._loop.call_soon(self._pump)

    def consume(self, data: bytearray, stop: int) -> int:
        """Read as far as the phase allows, at most to the end of a request; return the end position."""
        at, parser = 0, self.parser
        try:
            if self.phase is HEAD:
                if not parser.started:
                    self.since = self._state.now
                at = parser.feed(data, 0, stop)
                if parser.head is None:
                    return at
                self._connection.begin_request(parser.head)
            if at < stop and self.phase in (BODY, SKIPPING):
                at = parser.feed(data, at, stop)
                self._connection.body_arrived()
        except GatewayError as error:
            self._connection.refuse(error)
            return stop
        return at

    def hold(self, rest: bytearray) -> None:
        """Hold bytes until a phase needs them."""
        if self.phase in (LINGERING, CLOSED):
            return
        self.held = rest
        if self.phase in (HEAD, BODY, SKIPPING):
            # The rest is often a pipelined request. It is read after the data of other connections.
            self._loop.call_soon(self._pump)
        self.pause_when_full()

    def room(self, held: int) -> int:
        """The largest number of bytes for the next read; never 0, which asyncio refuses."""
        return max(1, len(self._state.read_view) - held)

    def pause_when_full(self) -> None:
        if not self.paused and self.held is not None and len(self.held) >= len(self._state.read_view):
            self.paused = True
            self.transport.pause_reading()
            self._connection.reading_paused(paused=True)

    def drop_held(self) -> None:
        """Drop the held bytes and resume reading."""
        self.held = None
        self._resume()

    def close(self) -> None:
        """Drop the references to the connection and to the parser's callbacks, which are reference cycles."""
        self.held = None
        self.parser.close()
        del self._connection

    def _pump(self) -> None:
        """Read the held bytes if the phase needs bytes."""
        held = self.held
        if held is None or self.phase not in (HEAD, BODY, SKIPPING):
            return
        self.held = None
        used = self.consume(held, len(held))
        rest = held[used:]
        if rest:
            self.hold(rest)
        if len(rest) < len(self._state.read_view):
            self._resume()

    def _resume(self) -> None:
        if self.paused:
            self.paused = False
            self._connection.reading_paused(paused=False)
            if not self.transport.is_closing():
                self.transport.resume_reading()
