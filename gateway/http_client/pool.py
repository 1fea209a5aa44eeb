"""Connections to upstreams by origin: the newest idle one first, otherwise a new one; their number is not limited.

An idle connection is closed after `keepalive` seconds, and at once if the server closes it or sends data without a
request. Sharp edge: a connection that the server has just closed seems open until the FIN arrives, and a request on it
fails. It is not sent again: it is unknown whether the server read it (RFC 9110, 9.2.2), and a POST may cost money.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from gateway.errors import Overloaded, UpstreamTimeout, UpstreamUnreachable
from gateway.http_client.connect import UpstreamRoute, own_failure
from gateway.http_client.connection import ClientConnection
from gateway.http_client.deadline_timer import Deadlines
from gateway.http_client.request import Address

READ_BYTES: Final = 64 * 1024  # one buffer for all connections of a loop
MOST_TRIED: Final = 16  # origins, the newest ones, that `Pool.connects` tries at once
MAX_IDLE: Final = 1024  # idle connections kept per origin; a burst may use all of them


class Origin:
    """One scheme, host and port with its idle connections; makes new ones."""

    def __init__(self, pool: Pool, host: str, port: int, tls: ssl.SSLContext | None) -> None:
        self.read_view = pool.read_view
        self._pool = pool
        self._route = UpstreamRoute(host, port, tls)
        self._idle: list[ClientConnection] = []  # the longest idle first
        self._open: set[ClientConnection] = set()

    def take(self) -> ClientConnection | None:
        """The connection that was used last, which is most likely still open; None if none is idle."""
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection
        return None

    async def connect(self, within: float) -> ClientConnection:
        """A new connection for a call, with TLS if needed, in `within` seconds.

        Raises UpstreamUnreachable or UpstreamTimeout; Overloaded if this machine lacks a descriptor or memory for it.
        """
        began = self._pool.connecting()
        try:
            return await self.try_to_connect(within)
        finally:
            self._pool.connected(began)

    async def try_to_connect(self, within: float) -> ClientConnection:
        """`connect`, without a call."""
        try:
            async with asyncio.timeout(within):
                connection = await self._route.open(lambda: ClientConnection(self))
        except TimeoutError:
            # No name for it: its traceback holds this frame, and both would wait for the collector.
            detail = f"no connection to {self._route} in {within:g} s"
            raise UpstreamTimeout(detail=detail).began_at("connection") from None
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise own_failure(error) or UpstreamUnreachable(detail=f"{self._route}: {error}"[:500]) from None
        if not connection.usable:  # it was lost before it had a reader
            raise UpstreamUnreachable(detail=f"{self._route}: closed at once")
        return connection

    def close(self) -> None:
        """Close every connection, those in use included."""
        for connection in tuple(self._open):
            connection.drop("the gateway closes its connections")
        self._idle.clear()

    def drop_idle_since(self, moment: float) -> float | None:
        """Close connections that are idle since before `moment`; return since when the next one is idle."""
        idle = self._idle
        while idle and idle[0].idle_since <= moment:
            idle.pop(0).abort()
        return idle[0].idle_since if idle else None

    # The connections' side -------------------------------------------------------------------------------------------

    def opened(self, connection: ClientConnection) -> None:
        """Called when a connection was made."""
        self._open.add(connection)
        self._pool.made += 1
        self._pool.made_at = self._pool.loop.time()

    def put_back(self, connection: ClientConnection) -> None:
        """Called when a connection is free."""
        if len(self._idle) >= MAX_IDLE:
            connection.abort()
            return
        self._idle.append(connection)
        self._pool.note_idle(connection)

    def lost(self, connection: ClientConnection) -> None:
        """Called when a connection was lost."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


@dataclass(eq=False, repr=False)
class Pool:
    """Every origin of one event loop."""

    loop: asyncio.AbstractEventLoop
    deadlines: Deadlines
    _: KW_ONLY
    keepalive: float  # seconds that an idle connection is kept
    tls: ssl.SSLContext | None
    read_view: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
    made: int = 0  # connections to any origin so far
    made_at: float = 0.0  # the loop's time at which the last connection to any origin was made
    _connecting: dict[object, float] = field(default_factory=dict)  # since when, the longest first
    _origins: dict[tuple[str, str, int], Origin] = field(default_factory=dict)
    _timer: asyncio.TimerHandle | None = None

    def origin(self, address: Address) -> Origin:
        """The origin of an address."""
        key = (address.scheme, address.host, address.port)
        origin = self._origins.get(key)
        if origin is None:
            tls = self._context() if address.scheme == "https" else None
            origin = self._origins[key] = Origin(self, address.host, address.port, tls)
        return origin

    def connecting(self) -> object:
        """Note that a call waits for a connection; pass the result to `connected` when it does not wait any more."""
        waiting = object()
        self._connecting[waiting] = self.loop.time()
        return waiting

    def connected(self, waiting: object) -> None:
        """The end of `connecting`."""
        del self._connecting[waiting]

    def waits(self, seconds: float) -> bool:
        """Whether a call has waited so long for a connection, and none to any origin was made since it began."""
        latest = self.loop.time() - seconds
        return any(self.made_at < began <= latest for began in self._connecting.values())

    async def connects(self, within: float) -> bool | None:
        """Whether one of some origins takes a connection in `within` seconds; None without one, or no descriptor."""
        some = tuple(self._origins.values())[-MOST_TRIED:]
        trying = {asyncio.ensure_future(_takes_connection(origin, within)) for origin in some}
        answers = set[bool | None]()
        try:
            while trying and not answers & {True, None}:
                done, trying = await asyncio.wait(trying, return_when=asyncio.FIRST_COMPLETED)
                answers |= {attempt.result() for attempt in done}
        finally:
            for attempt in trying:
                attempt.cancel()
        return True if True in answers else None if None in answers or not answers else False

    def note_idle(self, connection: ClientConnection) -> None:
        """Start the idle time of a connection; all share one timer."""
        connection.idle_since = self.loop.time()
        if self._timer is None:
            self._timer = self.loop.call_later(self.keepalive, self._drop_idle)

    def close(self) -> None:
        """Close every connection."""
        self.deadlines.close()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for origin in self._origins.values():
            origin.close()

    def _context(self) -> ssl.SSLContext:
        if self.tls is None:
            self.tls = ssl.create_default_context()  # 20 ms: it reads every root certificate
        return self.tls

    def _drop_idle(self) -> None:
        self._timer = None
        now = self.loop.time()
        oldest = [since for origin in self._origins.values() if (since := origin.drop_idle_since(now - self.keepalive))]
        if oldest:
            self._timer = self.loop.call_at(min(oldest) + self.keepalive, self._drop_idle)


async def _takes_connection(origin: Origin, within: float) -> bool | None:
    """Whether it does; None if this machine lacks a descriptor."""
    try:
        connection = await origin.try_to_connect(within)
    except (UpstreamTimeout, UpstreamUnreachable):
        return False
    except Overloaded:
        return None
    connection.abort()
    return True
