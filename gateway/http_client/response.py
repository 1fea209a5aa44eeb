"""One answer that arrives: a carrier pushes the data, one reader takes them, and the time limits are enforced.

The carrier (a direct connection, or aiohttp behind a proxy) calls `begin`, `push`, `end` or `fail`; the reader calls
`wait` for the head, then `take` or `whole`. It is woken once per batch, or once per answer if it reads the whole
answer: a JSON answer in one packet needs one future from request to body. Sharp edge: the idle time runs only while the
reader waits for the upstream. If the reader is slow, the carrier stops at `HIGH_WATER`.
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
LINGER_BYTES: Final = 64 * 1024  # largest size of the trailer


Lane = Callable[[bytes], bool]  # handles a piece of the body at once and returns True, or returns False


class AnswerCarrier(Protocol):
    """The connection on which an answer arrives."""

    def pause(self) -> None:
        """Stop reading until `resume`."""

    def resume(self) -> None:
        """Read again."""

    def abort(self) -> None:
        """Close at once; the rest of the answer is not needed."""


class Response:
    """The state of one answer, from its request on."""

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
        "heard",
        "status",
    )

    headers: Mapping[str, str]

    def __init__(self, loop: asyncio.AbstractEventLoop, deadlines: Deadlines, timeouts: Timeouts, *, started: float):
        self.status = 0  # until the head has arrived
        self.coding = ""  # the body's Content-Encoding
        self.ended = False  # nothing more will arrive
        self.heard = 0.0  # loop time at which the reader was last woken
        self._loop = loop
        self._carrier: AnswerCarrier | None = None
        self._pieces: list[bytes] = []
        self._size = 0  # of the pieces
        self._limit = -1  # of an answer that is read as a whole; -1 while pieces are read
        self._paused = False
        self._released = False
        self._lane: Lane | None = None  # of the current wait
        self._failure: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._patience = timeouts.first_byte  # until the first byte of the body, then the idle timeout
        self._idle = timeouts.idle
        self._since = started  # of the current wait for the upstream; 0 if there is none
        self._deadline = started + timeouts.total
        self._deadlines = deadlines
        deadlines.add(self)
        due = started + (timeouts.first_byte if timeouts.first_byte < timeouts.total else timeouts.total)
        if due < deadlines.next:
            deadlines.expect(due)

    # The carrier's side ----------------------------------------------------------------------------------------------

    def carried_by(self, carrier: AnswerCarrier) -> None:
        """Called with the carrier of the request."""
        self._carrier = carrier

    def begin(self, status: int, headers: Mapping[str, str], *, coding: str) -> None:
        """The head has arrived. The reader is not woken: `push`, `end` or `wake` follows."""
        self.headers = headers
        coding = coding.strip().lower()
        self.coding = "" if coding == "identity" else coding
        self.status = status

    def push(self, piece: bytes) -> None:
        """A part of the body has arrived."""
        lane, waiter = self._lane, self._waiter
        # A reader that was cancelled while it waited, because its client disconnected or its key was revoked, gets no
        # more data: text would be counted that is not sent.
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
        """End the answer with an error, which the reader gets after the data that have arrived."""
        if not self.ended:
            self._failure = error
            self.end()

    def cut(self, why: str) -> None:
        """Called when the carrier failed."""
        self.fail(UpstreamTruncated(detail=why) if self.status else UpstreamUnreachable(detail=why).began_at("answer"))

    def wake(self) -> None:
        """Wake the reader for the data that have arrived."""
        waiter = self._waiter
        self._lane = None  # later data must not overtake these
        if waiter is not None and not waiter.done():
            waiter.set_result(None)

    async def watching(self, source: AsyncIterator[bytes]) -> AsyncGenerator[bytes]:
        """The pieces of a request body. The idle time runs while the upstream takes a piece, not for a slow source."""
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
        """The loop time of the current deadline."""
        if self._since:
            return min(self._since + self._patience, self._deadline)
        return self._deadline

    def is_watched(self) -> bool:
        """Whether the reader waits for the upstream, so that `due` ends the wait; always before the head."""
        return not self.ended and (self._since > 0.0 or not self.status)

    def expire(self) -> None:
        """End the answer, because its deadline has passed."""
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
        """The data that arrived since the last call, or else the next data; b"" at the end of the body.

        While it waits, pieces that `lane` handles are not returned.
        """
        pieces = self._pieces
        if not pieces and not self.ended:
            if self._paused:  # only now, so that a stalled reader has one batch in memory, not two
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
        """The rest of the body; UpstreamInvalidResponse if it is over `limit` bytes."""
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
        """Called when the answer's own end marker was read: reuse the carrier if the body's end follows soon."""
        if not self.ended:
            self._pieces.clear()
            self._released = True
            self._limit = LINGER_BYTES
            self._since, self._deadline = 0.0, self._loop.time() + LINGER
            self._deadlines.expect(self._deadline)
            if self._paused:
                self._resume()

    def close(self) -> None:
        """Stop reading the answer. Its socket is closed at once, unless the answer is complete or was released."""
        carrier = self._carrier
        if not self.ended and (not self._released or self._limit < 0):
            self.fail(UpstreamTruncated(detail="the answer was closed"))
            if carrier is not None:
                carrier.abort()

    def _raise(self, failure: Exception) -> NoReturn:
        """Raise the stored failure, and store a new one for later reads.

        The traceback of a stored exception would refer to the owners of this answer, with the request's files, until
        the garbage collector runs.
        """
        self._failure = UpstreamTruncated(detail="the answer was read on after it had failed")
        try:
            raise failure
        finally:
            del failure

    def _lane_failed(self, error: Exception) -> None:
        """Call the provider's lane from the socket's callback; its errors are raised where the provider reads."""
        carrier = self._carrier
        self.fail(error)
        if carrier is not None:
            carrier.abort()

    def _waits_from_now(self) -> None:
        self._since = now = self._loop.time()
        if now + self._patience < self._deadlines.next:  # rare: the shared timer must be set again
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
            self.heard = self._loop.time()

    def _resume(self) -> None:
        self._paused = False
        if self._carrier is not None:
            self._carrier.resume()
