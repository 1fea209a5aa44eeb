"""One pipelined connection to one Redis server: an asyncio.Protocol over the hiredis parser.

Commands of one event-loop tick are sent in one `transport.write`; replies come back in order and resolve their futures.
One timer, set only while a command waits for its reply, watches the oldest command. If its reply is late, `on_late` is
called, so that the link can send repeatable commands (`resend`) over another connection. If it is overdue, the whole
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
LATE = 0.2  # of the timeout: the age of the oldest command from which `on_late` is called, twice in that time
MAX_WAITING_BYTES = 32 * 2**20  # of commands that wait for a late server
#: Additional seconds for an overdue reply, and for a late one if the loop itself is later than this: the reply may have
#: arrived, and be read next. In a turn of the loop that serves 2,000 connections, each reply is 0.2 s old.
GRACE = 0.02
#: Timeouts that a command may wait behind others that are answered. With 2,000 connections of 1,000 accounts in a
#: closed loop, 4,000 commands waited for 1.2 s: 1.5 MB of them in this process, and none because of a slow store.
MOST_QUEUED = 5

DEMOTED = "the server was demoted to a replica"

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
#: A repeatable command without a reply, where its reply goes, the loop time at which it was sent first, and whether it
#: was the oldest one: then it is its reply that was lost.
Unanswered = tuple[bytes, ReplyTo, float, bool]
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
        on_lost: Callable[[RedisConnection, str, list[Unanswered]], None],
        on_late: Callable[[RedisConnection], None] | None = None,
        max_in_flight: int = 10_000,
        on_redirect: Redirect | None = None,
        on_push: Callable[[list[Any]], None] | None = None,
    ) -> None:
        self._loop = loop
        self._timeout = timeout
        self._late_after = timeout * LATE
        self._on_lost = on_lost
        self._on_late = on_late
        self._max_in_flight = max_in_flight
        self._on_redirect = on_redirect
        self._on_push = on_push
        self._transport: asyncio.Transport | None = None
        self._reader = hiredis.Reader(replyError=_reply_error, notEnoughData=_NOTHING, errors="replace")
        self._outgoing: list[bytes] = []  # the last commands of _waiting, which were not written yet
        self._waiting: deque[Sent] = deque()
        self._tick = Tick(0.0)
        self._deadline: asyncio.Handle | None = None  # uvloop's has no time if it was due when it was set
        self._due = 0.0  # loop time of `_deadline`
        self._replied = 0.0  # loop time of the last reply
        self._overdue: Sent | None = None  # the oldest command, if its reply gets the grace
        self.most = max_in_flight  # commands without a reply; fewer while the server is late and they are large
        self.silent = False  # closed because of an overdue reply
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
                self._check_at(self._tick.at + self._late_after)
        self._outgoing.append(command)
        self._waiting.append((reply, self._tick, again))

    def send_no_reply(self, command: bytes) -> None:
        """Write a command without a reply, such as RESP3's SUBSCRIBE; only while no command waits for a reply."""
        assert not self._waiting, "it would go out of turn"
        if self._transport is not None:
            self._transport.write(command)

    def adopt_queue(self, queue: Iterable[Queued]) -> None:
        """Send the commands that waited for this connection.

        Their waiting time counts against the timeout, but the server has a fifth of the timeout at least.
        """
        assert not self._waiting, "only a connection that has just said hello takes over a queue"
        self._replied = 0.0  # the greeting is no reply to them
        earliest = self._loop.time() - self._timeout + self._late_after
        for command, future, called_at, may_move in queue:
            if not future.done():
                self._outgoing.append(command)
                self._waiting.append((future, Tick(max(called_at, earliest)), command if may_move else b""))
        if self._waiting:
            self._tick = Tick(0.0)  # a new tick: `flush` must not restart the time of these commands
            self._loop.call_soon(self.flush)
            if self._deadline is not None:
                self._deadline.cancel()
            self._check_at(self._waiting[0][1].at + self._late_after)

    def is_late(self) -> bool:
        """Whether the server has sent nothing for longer than a fifth of the timeout while a command waits."""
        return bool(self._waiting) and self._loop.time() - self._awaited_since() >= self._late_after

    def _awaited_since(self) -> float:
        """When the oldest command was sent, or when the server replied last to one of those before it if that is later.

        A server that replies is not late, however many commands wait: copies of them would only make it slower.
        """
        sent = self._waiting[0][1].at
        return min(max(sent, self._replied), sent + (MOST_QUEUED - 1) * self._timeout)

    def replace_repeatable(self, replace: Callable[[ReplyTo, float], ReplyTo]) -> list[tuple[bytes, ReplyTo]]:
        """Change where the replies to repeatable commands go; return these commands with the new places.

        `replace` gets the old place and the loop time at which the command was sent.
        """
        found = []
        waiting = list(self._waiting)
        for position, (reply, tick, command) in enumerate(waiting):
            if command and is_repeatable(reply):
                reply = replace(reply, tick.at)
                waiting[position] = (reply, tick, command)
                found.append((command, reply))
        self._waiting.clear()  # changed in place: `data_received` has a reference to it
        self._waiting.extend(waiting)
        return found

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
        self._replied = self._loop.time()
        try:
            while (reply := gets()) is not _NOTHING:
                plain = type(reply) is list  # what scripts answer: neither an error nor a push
                if not plain and isinstance(reply, hiredis.PushNotification):  # a message of a subscription, by RESP3
                    if self._on_push is not None:
                        self._on_push(reply)
                    continue
                if not waiting:
                    if plain and self._on_push is not None:  # a message of a subscription, by RESP2
                        self._on_push(reply)
                        continue
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
        if reply.startswith("READONLY") and command and is_repeatable(future):
            self._waiting.appendleft((future, Tick(self._loop.time()), command))  # `_lose` passes it on
            self.abort(DEMOTED)
            return
        redirect = self._on_redirect if command and reply.startswith(("MOVED ", "ASK ")) else None
        if redirect is not None and redirect(command, future, reply):
            return
        if not future.done():
            future.set_exception(error)
        if reply.startswith("READONLY"):
            self.abort(DEMOTED)  # the address may lead to the new master by now

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

    def _check_at(self, due: float) -> None:
        self._due = due
        self._deadline = self._loop.call_at(due, self._check)

    def _check(self) -> None:
        due, self._deadline = self._due, None
        before, self._overdue = self._overdue, None
        self.most = self._max_in_flight
        if not self._waiting:
            return
        oldest = self._waiting[0]
        since, now = self._awaited_since(), self._loop.time()
        if now < since + self._late_after:
            self._check_at(since + self._late_after)
        elif before is not oldest and (now >= since + self._timeout or now > due + GRACE):
            self._overdue = oldest  # the entry: an object that takes replies may wait for a second one
            self._check_at(now + GRACE)
        elif now < since + self._timeout:
            self._check_at(min(now + self._late_after / 2, since + self._timeout))
            self._limit_bytes()
            if self._on_late is not None and any(is_repeatable(reply) for reply, _, _ in self._waiting):
                self._on_late(self)
        else:
            self.silent = True
            self.abort(f"no reply within {self._timeout:g} s")

    def _limit_bytes(self) -> None:
        """Let only as many commands wait as have MAX_WAITING_BYTES if they are as long as those that wait now."""
        total = sum(len(command) for _, _, command in self._waiting)
        if total:
            self.most = min(self._max_in_flight, MAX_WAITING_BYTES * len(self._waiting) // total)

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
        unanswered: list[Unanswered] = []
        for position, (future, tick, command) in enumerate(waiting):
            if future.done():
                continue
            if command and is_repeatable(future):
                unanswered.append((command, future, tick.at, position == 0))
            else:
                fate = StoreFate.UNKNOWN if position < len(waiting) - unsent else StoreFate.NEVER_SENT
                future.set_exception(StoreUnavailable(detail=reason, fate=fate))
        self._on_lost(self, reason, unanswered)


def is_repeatable(reply: ReplyTo) -> bool:
    """Whether the command whose reply goes there may be sent again, and needs to be."""
    return getattr(reply, "repeatable", False) and not reply.done()
