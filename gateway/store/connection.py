"""One pipelined connection to one Redis server: an asyncio.Protocol over the hiredis parser.

Commands of one event-loop tick are sent in one `transport.write`; replies come back in order and resolve their futures.
One timer, set only while a command waits for its reply, watches the oldest command. If its reply is overdue, the whole
connection is closed, because every later reply comes after it. A connection never reconnects; `RedisLink` does.

Sharp edge: an error nested inside an array reply (EXEC, say) arrives as an exception *instance* in the list.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import hiredis

from gateway.errors import GatewayError, InternalError, StoreFate, StoreUnavailable

# Replies of a server that cannot serve now and did nothing: a 503 for the caller, not a bug of the gateway.
UNABLE = frozenset(
    [
        *("LOADING", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "NOREPLICAS", "MISCONF", "OOM", "BUSY", "TRYAGAIN"),
        *("MOVED", "ASK"),
    ]
)
HALF_MOVED = "non local key"  # a script used a slot that is being moved key by key; it may have written before
GRACE = 0.02  # additional seconds for an overdue reply: if our own loop was late, the reply may be read next

_NOTHING = object()


class ReplyTo(Protocol):
    """Where the reply to a command goes: an `asyncio.Future`, or an object that is called while replies are read.

    Sharp edge: such an object must not raise, and `set_exception` may be called before the link knows of a loss.
    """

    def done(self) -> bool:
        """Whether the reply is no longer needed."""

    def set_result(self, result: Any, /) -> None:
        """Take the reply."""

    def set_exception(self, exception: Exception, /) -> None:
        """Take the error."""


#: Command, where its reply goes, loop time of the call, whether it may be redirected.
Queued = tuple[bytes, ReplyTo, float, bool]
#: Where the reply goes, when the command was sent, and the command; b"" if it may not be redirected.
Sent = tuple[ReplyTo, "Tick", bytes]


class RedisReplyError(InternalError):
    """The server refused a command that we should not have sent; the reply is in `detail`."""

    @property
    def kind(self) -> str:
        """First word of the reply: ERR, NOSCRIPT, WRONGTYPE, MOVED."""
        return (self.detail or "").partition(" ")[0]


def _reply_error(reply: str) -> GatewayError:
    if reply.partition(" ")[0] in UNABLE:
        return StoreUnavailable(detail=reply, fate=StoreFate.REFUSED)
    if HALF_MOVED in reply:
        return StoreUnavailable(detail=reply, fate=StoreFate.UNKNOWN)
    return RedisReplyError(detail=reply)


#: Called with a command that belongs to another server, where its reply goes, and the reply; True if it was sent there.
Redirect = Callable[[bytes, ReplyTo, str], bool]


class Tick:
    """The commands of one event-loop tick: when they were called, then when they were written."""

    __slots__ = ("at",)

    def __init__(self, at: float) -> None:
        self.at = at


class RedisConnection(asyncio.Protocol):
    """Sends packed commands and resolves their futures until the connection is lost."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        timeout: float,
        on_lost: Callable[[RedisConnection, str], None],
        on_redirect: Redirect | None = None,
        on_push: Callable[[list[Any]], None] | None = None,
    ) -> None:
        self._loop = loop
        self._timeout = timeout
        self._on_lost = on_lost
        self._on_redirect = on_redirect
        self._on_push = on_push
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=_reply_error, notEnoughData=_NOTHING, errors="replace")
        self._outgoing: list[bytes] = []  # the last commands of _waiting, which were not written yet
        self._waiting: deque[Sent] = deque()
        self._tick = Tick(0.0)
        self._deadline: asyncio.TimerHandle | None = None
        self._overdue: Sent | None = None  # the oldest command, if its reply is late
        self.lost: asyncio.Future[None] = loop.create_future()  # resolves when the connection is lost

    @property
    def in_flight(self) -> int:
        """Commands without a reply."""
        return len(self._waiting)

    def send(self, command: bytes, reply: ReplyTo, *, again: bytes) -> None:
        """Queue one packed command for the write at the end of this tick; `again` as in `put`."""
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        self.put(command, reply, again=again)

    def put(self, command: bytes, reply: ReplyTo, *, again: bytes) -> None:
        """Queue one packed command for the next `flush`, which the caller must call in this tick.

        `again` is the command where it may be redirected, else b"".
        """
        if not self._outgoing:
            self._tick = Tick(self._loop.time())
            if self._deadline is None:
                self._deadline = self._loop.call_at(self._tick.at + self._timeout, self._check)
        self._outgoing.append(command)
        self._waiting.append((reply, self._tick, again))

    def send_no_reply(self, command: bytes) -> None:
        """Write a command without a reply, such as RESP3's SUBSCRIBE; only while no command waits for a reply."""
        assert not self._waiting, "it would go out of turn"
        if self._transport is not None:
            self._transport.write(command)

    def adopt_queue(self, queue: Iterable[Queued]) -> None:
        """Send the commands that waited for this connection; their waiting time counts against the timeout."""
        assert not self._waiting, "only a connection that has just said hello takes over a queue"
        for command, future, called_at, may_move in queue:
            if not future.done():
                self._outgoing.append(command)
                self._waiting.append((future, Tick(called_at), command if may_move else b""))
        if self._waiting:
            self._tick = Tick(0.0)  # a new tick: `flush` must not restart the time of these commands
            self._loop.call_soon(self.flush)
            if self._deadline is not None:
                self._deadline.cancel()
            self._deadline = self._loop.call_at(self._waiting[0][1].at + self._timeout, self._check)

    def abort(self, reason: str) -> None:
        """Close the connection now and fail all its commands at once."""
        if self._transport is not None:
            self._transport.abort()
        self._lose(reason)

    # asyncio.Protocol ----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # create_connection makes a read-write transport

    def data_received(self, data: bytes) -> None:
        reader = self._reader
        reader.feed(data)
        gets, waiting = reader.gets, self._waiting
        try:
            while (reply := gets()) is not _NOTHING:
                plain = type(reply) is list  # what scripts answer: neither an error nor a push
                if not plain and isinstance(reply, hiredis.PushNotification):  # a message of a subscription, by RESP3
                    if self._on_push is not None:
                        self._on_push(reply)
                    continue
                if not waiting:
                    if not self.lost.done():
                        self.abort("a reply that nobody asked for")
                    return
                future, _, command = waiting.popleft()
                if not plain and isinstance(reply, GatewayError):
                    self._refuse(future, reply, command)
                elif not future.done():
                    future.set_result(reply)
        except hiredis.ProtocolError as error:
            self.abort(f"not the Redis protocol: {error}")

    def connection_lost(self, error: Exception | None) -> None:
        self._lose(str(error) if error else "closed by the server")

    # ---------------------------------------------------------------------------------------------------------------

    def _refuse(self, future: ReplyTo, error: GatewayError, command: bytes) -> None:
        reply = error.detail or ""
        redirect = self._on_redirect if command and reply.startswith(("MOVED ", "ASK ")) else None
        if redirect is not None and redirect(command, future, reply):
            return
        if not future.done():
            future.set_exception(error)
        if reply.startswith("READONLY"):
            self.abort("the server was demoted to a replica")  # the address may lead to the new master by now

    def flush(self) -> None:
        """Write the queued commands now instead of at the end of the tick."""
        outgoing, transport = self._outgoing, self._transport
        if not outgoing:  # written before its tick had ended
            return
        if self.lost.done() or transport is None or transport.is_closing():
            return  # the commands in _outgoing fail as never sent
        self._outgoing = []
        self._tick.at = self._loop.time()  # the time of a handler that computed since the call does not count
        transport.write(outgoing[0] if len(outgoing) == 1 else b"".join(outgoing))

    def _check(self) -> None:
        self._deadline = None
        before, self._overdue = self._overdue, None
        if not self._waiting:
            return
        oldest = self._waiting[0]
        due = oldest[1].at + self._timeout
        if self._loop.time() < due:
            self._deadline = self._loop.call_at(due, self._check)
        elif before is oldest:  # the entry: an object that takes replies may wait for a second one
            self.abort(f"no reply within {self._timeout:g} s")
        else:
            self._overdue = oldest
            self._deadline = self._loop.call_later(GRACE, self._check)

    def _lose(self, reason: str) -> None:
        if self.lost.done():
            return
        self.lost.set_result(None)
        if self._deadline is not None:
            self._deadline.cancel()
        waiting, unsent = list(self._waiting), len(self._outgoing)
        self._waiting.clear()
        self._outgoing.clear()
        self._overdue = None  # the traceback of its error may refer to this connection, whose greeting awaited it
        for position, (future, _, _) in enumerate(waiting):
            if not future.done():
                fate = StoreFate.UNKNOWN if position < len(waiting) - unsent else StoreFate.NEVER_SENT
                future.set_exception(StoreUnavailable(detail=reason, fate=fate))
        self._on_lost(self, reason)
