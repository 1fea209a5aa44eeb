"""The HTTP server: a `tornado.web.Application`, or any HTTPServerConnectionDelegate, behind a C parser.

    server = HTTPServer(application, ServerLimits(header_timeout=5.0))
    await server.start(bound_socket)
    …
    server.close_listener()
    await server.drain(30.0)

A bare RequestHandler answers about twice as many requests per second as under Tornado's own server
(benchmarks/micro_http.py). Sharp edges: there is no TLS, HTTP/2 or WebSocket here; a proxy in front can add the first
two. A client's half-close while its answer is produced counts as a disconnect.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

from tornado.httputil import HTTPServerConnectionDelegate

from gateway.errors import GatewayError, Overloaded
from gateway.http_server.client_address import Network
from gateway.http_server.connection import Connection
from gateway.http_server.connection_limit import ANSWERED_AT_ONCE, ConnectionLimit, OnFull
from gateway.http_server.exchange import Refusal
from gateway.http_server.limits import ServerLimits
from gateway.http_server.proxy_protocol import ProxyPreface
from gateway.http_server.server_state import ServerState
from gateway.log import WarningLimit

log = logging.getLogger("gateway")

# A request takes several turns of the loop, and waits in each of them for what other connections do in it.
ACCEPTED_AT_ONCE: Final = 8  # connections in one turn of the loop, about 0.5 ms
SWEEP_SLICE: Final = 0.0005  # seconds of sweeping in one turn of the loop: some 20 late connections, or 200 others
PAUSE: Final = 0.002  # seconds before more are accepted or swept
WATCH_INTERVAL: Final = 0.1  # seconds between checks for a disconnect of clients whose connections do not read


def openai_error(error: GatewayError) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer to a request that reached no handler, in OpenAI's format."""
    return {"Content-Type": "application/json", **error.headers()}, error.body()


class HTTPServer:
    """Serves one application on one socket in the running event loop.

    `on_protocol_error` makes the answer to requests that reach no handler: malformed ones and oversized headers (400),
    oversized bodies (413), slow ones (408), and connections beyond the limit (503). `preface_from`: networks whose
    proxies send a PROXY header, version 2, before each connection; no other connection is then accepted. `on_full` is
    told what was closed and refused at the limit.
    """

    def __init__(
        self,
        app: HTTPServerConnectionDelegate,
        limits: ServerLimits | None = None,
        *,
        server_header: str = "model-gateway",
        on_protocol_error: Refusal = openai_error,
        preface_from: tuple[Network, ...] = (),
        on_full: OnFull | None = None,
    ) -> None:
        self.app = app
        self.state = ServerState(limits or ServerLimits(), server_header=server_header)
        self._preface_from = preface_from
        self._preface_warnings = WarningLimit()
        self._idle_until = 0.0
        self._error_answer = on_protocol_error
        self._limit = ConnectionLimit(self.state.limits.max_connections, on_full)
        self._loop: asyncio.AbstractEventLoop
        self._listener: asyncio.Server | None = None
        self._sock: socket.socket
        self._accepting: set[asyncio.Task[object]] = set()
        self._accepts_more = False
        self._connections: set[Connection] = set()
        self._watched: set[Connection] = set()
        self._refused: set[Connection] = set()  # beyond the limit, until they have received their answer
        self._sweeping = False
        self._watching = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket."""
        self._loop = loop = asyncio.get_running_loop()
        self.state.start(loop)
        self._sock = sock
        self._listener = await loop.create_server(self._accepted, sock=sock, backlog=self.state.limits.backlog)

    def _accepted(self) -> Connection | ProxyPreface:
        """Called for each connection that the loop accepts."""
        if not self._accepts_more:
            self._accepts_more = True
            self._loop.call_soon(self._accept_more)
        return self._new_protocol()

    def _accept_more(self) -> None:
        """Accept further queued connections; uvloop accepts one in each turn of the loop.

        A busy loop has few turns. So many new connections, which may all be of one client, would wait for seconds.
        """
        for _ in range(ACCEPTED_AT_ONCE):
            if self._listener is None or (queued := self._next_queued()) is None:
                self._accepts_more = False
                return
            self._take(queued)
        self._loop.call_later(PAUSE, self._accept_more)

    def _new_protocol(self) -> Connection | ProxyPreface:
        connection = Connection(self, self._loop)
        if not self._preface_from:
            return connection
        timeout = self.state.limits.header_timeout
        return ProxyPreface(connection, self._preface_from, timeout=timeout, on_refused=self._preface_refused)

    def _preface_refused(self, reason: str) -> None:
        if events := self._preface_warnings.due("preface", self._loop.time()):
            log.warning("connections closed because of server.proxy_protocol: %d, the last one: %s", events, reason)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def close_listener(self) -> None:
        """Stop listening; open connections stay open, and those that the kernel queued are still accepted."""
        if self._listener is None:
            return
        while (queued := self._next_queued()) is not None:
            self._take(queued)
        self._listener.close()
        self._listener = None

    def _take(self, queued: socket.socket) -> None:
        """Make the connection of an accepted socket."""
        accepting = self._loop.connect_accepted_socket(self._new_protocol, queued)
        task: asyncio.Task[object] = self._loop.create_task(accepting)
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    def _next_queued(self) -> socket.socket | None:
        try:
            return self._sock.accept()[0]
        except OSError:  # no queued connection, or it was closed again
            return None

    async def drain(self, timeout: float) -> None:
        """Answer running requests, close idle connections, and drop the others after `timeout` seconds.

        Idle connections stay open for one more tick: a request may be on its way; it gets Connection: close.
        """
        self.state.draining = True
        self._idle_until = self._loop.time() + self.state.tick
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*self._accepting, return_exceptions=True)
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._empty.wait()

    # Methods that connections call.

    def error_answer(self, error: GatewayError, refusal: Refusal | None) -> bytes:
        """The answer to a refused request, made by its handler if it has one; the connection closes afterwards."""
        headers, body = (refusal or self._error_answer)(error)
        lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "connection"]
        lines += [f"Content-Length: {len(body)}", "Connection: close"]
        return "\r\n".join(lines).encode("latin-1") + self.state.own_headers + body

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._empty.clear()
        if not self._sweeping:
            self._sweeping = True
            self.state.read_clock(self._loop)
            self._loop.call_later(self.state.tick, self._sweep)
        if self._limit.most and len(self._connections) - len(self._refused) > self._limit.most:
            self._make_room(connection)

    def _make_room(self, connection: Connection) -> None:
        """Close an idle connection for a new one beyond the limit; refuse the new one if there is none."""
        if self._limit.make_room(one for one in self._connections if one is not connection):
            return
        if len(self._refused) >= ANSWERED_AT_ONCE:
            connection.abort()
        else:
            self._refused.add(connection)
            connection.refuse(Overloaded("Too many connections; try again in a moment"))

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._watched.discard(connection)
        self._refused.discard(connection)
        if not self._connections:
            self._empty.set()
        self.app.on_close(connection)

    def watch(self, connection: Connection) -> None:
        """Check regularly whether the client of a connection that does not read has disconnected."""
        self._watched.add(connection)
        if not self._watching:
            self._watching = True
            self._loop.call_later(WATCH_INTERVAL, self._watch)

    def unwatch(self, connection: Connection) -> None:
        self._watched.discard(connection)

    def _watch(self) -> None:
        for connection in list(self._watched):
            if connection.client_is_gone():
                connection.abort()
        self._watching = bool(self._watched)
        if self._watching:
            self._loop.call_later(WATCH_INTERVAL, self._watch)

    def _sweep(self) -> None:
        """Enforce the time limits of all connections with one timer; a timer per request costs 3 µs."""
        before = self.state.now
        self._limit.tick()
        self._sweep_some(iter(list(self._connections)), before)

    def _sweep_some(self, left: Iterator[Connection], before: float) -> None:
        """Sweep some connections; requests are served before the next ones, because thousands may be late at once."""
        self.state.read_clock(self._loop)
        ends = time.monotonic() + SWEEP_SLICE
        for connection in left:
            if connection not in self._connections:  # it was closed meanwhile
                continue
            connection.sweep(self.state.now)
            if self.state.draining and self.state.now >= self._idle_until:
                connection.close_if_idle(before)
            if time.monotonic() > ends:
                self._loop.call_later(PAUSE, self._sweep_some, left, before)
                return
        self._sweeping = bool(self._connections)
        if self._sweeping:
            self._loop.call_later(self.state.tick, self._sweep)
