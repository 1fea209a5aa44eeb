"""One answer on its way in: a carrier pushes what arrives, one reader takes it, and the clock is watched in between.

The carrier (a connection of ours, or aiohttp behind a proxy) calls `begin`, `push`, `end` or `fail`; the reader calls
`wait` for the head, then `take` or `whole`. It is woken once per batch, and once per answer when it wants all of it: a
JSON answer that comes in one packet is one future from request to body. Sharp edge: silence counts only while somebody
waits for the upstream; a reader that is slow itself stops the carrier at `HIGH_WATER` instead.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from typing import Final, NoReturn, Protocol

from gateway.errors import UpstreamInvalidResponse, UpstreamTimeout, UpstreamTruncated, UpstreamUnreachable
from gateway.http_client.deadline_timer import Deadlines
from gateway.http_client.timeouts import Timeouts

HIGH_WATER: Final = 32 * 1024  # unread bytes at which the carrier is paused: one full read is enough
LINGER: Final = 1.0  # seconds that the transport's trailer may take after the answer's own end marker
LINGER_BYTES: Final = 64 * 1024  # and what it may consist of


Lane = Callable[[bytes], bool]  # deals with a piece of the body at once, or says that it cannot


class Carrier(Protocol):
    """What an answer arrives on."""

    def pause(self) -> None:
        """Read no more for now."""

    def resume(self) -> None:
        """Read again."""

    def abort(self) -> None:
        """Close at once; nothing more is wanted."""


class Response:
    """The state of one answer, from the request on."""

    __slots__ = (
        "_carrier",
        "_deadline",
        "_deadlines",
        "_failure",
        "_idle",
        "_lane",
        "_limit",
        "_loop",
        "_patience",
        "_paused",
        "_pieces",
        "_released",
        "_since",
        "_size",
        "_waiter",
        "coding",
        "ended",
        "headers",
        "status",
    )

    headers: Mapping[str, str]

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines, timeouts: Timeouts, *, started: float):
        self.status = 0  # until the head has arrived
        self.coding = ""  # the body's Content-Encoding
        self.ended = False  # nothing more will arrive
        self._loop = loop
        self._carrier: Carrier | None = None
        self._pieces: list[bytes] = []
        self._size = 0  # of the pieces
        self._limit = -1  # of an answer that is wanted whole; -1 while pieces are wanted
        self._paused = False
        self._released = False
        self._lane: Lane | None = None  # of the present wait
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._patience = timeouts.first_byte  # until the first byte of the body, then the idle timeout
        self._idle = timeouts.idle
        self._since = started  # of the present wait for the upstream; 0 when nobody waits for it
        self._deadline = started + timeouts.total
        self._deadlines = deadlines
        deadlines.add(self)
        due = started + (timeouts.first_byte if timeouts.first_byte < timeouts.total else timeouts.total)
        if due < deadlines.next:
            deadlines.expect(due)

    # The carrier's side ----------------------------------------------------------------------------------------------

    def carried_by(self, carrier: Carrier) -> None:
        """The request goes out on `carrier`."""
        self._carrier = carrier

    def begin(self, status: int, headers: Mapping[str, str], *, coding: str) -> None:
        """The head has arrived. The reader is not woken: `push`, `end` or `wake` follows."""
        self.headers = headers
        self.coding = coding
        self.status = status

    def push(self, piece: bytes) -> None:
        """A part of the body has arrived."""
        lane, waiter = self._lane, self._waiter
        # A reader that was cancelled while it waited, as its client left or its key was revoked, gets nothing more:
        # text would be counted that nobody is sent.
        if lane is not None and waiter is not None and not waiter.done():
            try:
                if lane(piece):
                    self._since = now = self._loop.time()
                    if now + self._patience < self._deadlines.next:
                        self._deadlines.expect(now + self._patience)
                    return
            except Exception as error:
                self._lane_failed(error)
                return
        elif self._released:
            self._limit -= len(piece)
            if self._limit < 0:
                self.close()
            return
        self._pieces.append(piece)
        self._size += len(piece)
        if self._limit < 0:
            if self._size > HIGH_WATER and not self._paused and self._carrier is not None:
                self._paused = True
                self._carrier.pause()
        else:
            self._patience = self._idle
            self._waits_from_now()
            if self._size <= self._limit:
                return
        self.wake()

    def end(self) -> None:
        """The body is complete; the carrier is free."""
        self.ended = True
        self._carrier = None
        self._deadlines.discard(self)
        self.wake()

    def fail(self, error: Exception) -> None:
        """Nothing more will arrive, and the reader is to know why once it has read what did."""
        if not self.ended:
            self._failure = error
            self.end()

    def cut(self, why: str) -> None:
        """The carrier broke."""
        self.fail(UpstreamTruncated(detail=why) if self.status else UpstreamUnreachable(detail=why))

    def wake(self) -> None:
        """Let the reader see what has arrived."""
        waiter = self._waiter
        self._lane = None  # what comes from here on has to wait its turn
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def watching(self, source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """The pieces of a request body: a slow source is no silent upstream, a slow taker of its pieces is."""
        try:
            self._since = 0.0
            async for piece in source:
                self._waits_from_now()
                yield piece
                self._since = 0.0
        finally:
            self._waits_from_now()
            if isinstance(source, AsyncGenerator):
                await source.aclose()

    # The clock's side ------------------------------------------------------------------------------------------------

    def due(self) -> float:
        """When this answer is late as things stand."""
        if self._since:
            return min(self._since + self._patience, self._deadline)
        return self._deadline

    def expire(self) -> None:
        """Give the answer up: it is late."""
        late = self._loop.time() >= self._deadline
        carrier = self._carrier
        self._pieces.clear()
        self.fail(UpstreamTimeout(detail="the total deadline passed" if late else f"silent for {self._patience:g} s"))
        if carrier is not None:
            carrier.abort()

    # The reader's side -----------------------------------------------------------------------------------------------

    def check_head(self) -> None:
        """Raise the failure of an answer that ended before its status and headers; called after `wait`."""
        if self._failure is not None and not self.status:
            self._raise(self._failure)

    async def take(self, lane: Lane | None = None) -> bytes:
        """What has arrived since the last call, waiting for some; b"" at the end of the body.

        While it waits, pieces that `lane` takes go past it.
        """
        pieces = self._pieces
        if not pieces and not self.ended:
            if self._paused:  # not before the last batch is used up: a stalled reader has one in memory, not two
                self._resume()
            self._waits_from_now()
            self._lane = lane
            await self.wait()
        if pieces:
            taken = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            self._size = 0
            self._patience = self._idle
            return taken
        if self._failure is not None:
            self._raise(self._failure)
        return b""

    async def whole(self, limit: int) -> bytes:
        """All that has not been taken yet; UpstreamInvalidResponse when that is over `limit` bytes."""
        if not self.ended and self._size <= limit:
            self._limit = limit
            self._waits_from_now()
            if self._paused:
                self._resume()
            await self.wait()
        return self.taken(limit)

    def taken(self, limit: int) -> bytes:
        """`whole`, of an answer that has ended."""
        if self._size > limit:
            self.close()
            raise UpstreamInvalidResponse(detail=f"the answer is over {limit} bytes")
        if self._failure is not None:
            self._raise(self._failure)
        pieces, self._pieces, self._size = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def release(self) -> None:
        """The answer's own end marker was read: let the carrier be used again if its end follows soon."""
        if not self.ended:
            self._pieces.clear()
            self._released = True
            self._limit = LINGER_BYTES
            self._since, self._deadline = 0.0, self._loop.time() + LINGER
            self._deadlines.expect(self._deadline)
            if self._paused:
                self._resume()

    def close(self) -> None:
        """Stop the answer where it is: its socket is closed at once, unless all has arrived or was released."""
        carrier = self._carrier
        if not self.ended and (not self._released or self._limit < 0):
            self.fail(UpstreamTruncated(detail="the answer was closed"))
            if carrier is not None:
                carrier.abort()

    def _raise(self, failure: Exception) -> NoReturn:
        """Raise why nothing more came, and keep another to raise from then on.

        One that stayed here would hold, by its traceback, all who hold this answer, the request's files among them,
        until the garbage collector came round.
        """
        self._failure = UpstreamTruncated(detail="the answer was read on after it had failed")
        try:
            raise failure
        finally:
            del failure

    def _lane_failed(self, error: Exception) -> None:
        """A provider's code, called from the socket: what it raises is raised where the provider reads."""
        carrier = self._carrier
        self.fail(error)
        if carrier is not None:
            carrier.abort()

    def _waits_from_now(self) -> None:
        self._since = now = self._loop.time()
        if now + self._patience < self._deadlines.next:  # seldom: then the common timer must be set anew
            self._deadlines.expect(now + self._patience)

    async def wait(self) -> None:
        """Wait until the carrier has news: the head, a piece, the end."""
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        except asyncio.CancelledError:
            self.close()
            raise
        finally:
            self._waiter = self._lane = None
            self._since = 0.0

    def _resume(self) -> None:
        self._paused = False
        if self._carrier is not None:
            self._carrier.resume()
