"""The HTTP server: a `tornado.web.Application`, or any HTTPServerConnectionDelegate, behind a C parser.

    server = HTTPServer(application, ServerLimits(header_timeout=5.0))
    await server.start(bound_socket)
    …
    server.close_listener()
    await server.drain(30.0)

A bare RequestHandler answers about twice as many requests per second as under Tornado's own server
(benchmarks/micro_http.py). Sharp edges: there is no TLS, HTTP/2 or WebSocket here, a proxy in front brings the first
two; and a client's half-close while its answer is produced counts as leaving.
"""

from __future__ import annotations

import asyncio
import socket
from email.utils import formatdate
from http import HTTPStatus
from typing import Final

import msgspec
from tornado.httputil import HTTPServerConnectionDelegate

from gateway.errors import GatewayError
from gateway.http_server.connection import Connection
from gateway.http_server.exchange import Refusal
from gateway.http_server.head import HeaderNames
from gateway.http_server.write_batch import WriteBatch

WATCH_INTERVAL: Final = 0.1  # seconds between looks at connections that do not read, for a client that left


class ServerLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What one connection may take; times in seconds, enforced to within `HTTPServer.tick`."""

    max_header_bytes: int = 65_536
    max_header_count: int = 100
    max_body_bytes: int = 33_554_432  # a handler may change it per request with `set_max_body_size`
    header_timeout: float = (
        10.0  # from the first byte of a request to the end of its head; from connect to a first byte
    )
    keepalive_timeout: float = 65.0  # between requests
    body_idle_timeout: float = 15.0  # without any body byte; also the grace before the rate below is demanded
    min_body_rate: int = 1_024  # bytes per second, on average
    write_timeout: float = 30.0  # without the client taking a byte
    read_buffer: int = 65_536  # bytes one read takes, and that may wait unparsed per connection
    write_high_water: int = 65_536  # bytes unsent from which on `write` and `flush` make their caller wait
    skip_bytes: int = 65_536  # rest of an unread body that is read and dropped to keep the connection
    linger_timeout: float = 5.0  # how long a client may go on sending to a closed connection
    linger_bytes: int = 16_777_216
    backlog: int = 1_024


def openai_error(error: GatewayError) -> tuple[dict[str, str], bytes]:
    """Headers and body of an answer to a request that reached no handler, in OpenAI's shape."""
    return {"Content-Type": "application/json", **error.headers()}, error.body()


class HTTPServer:
    """Serves one application on one socket in the running event loop.

    `on_protocol_error` makes the answer to requests that reach no handler: malformed ones and oversized headers (400),
    oversized bodies (413), slow ones (408).
    """

    def __init__(
        self,
        app: HTTPServerConnectionDelegate,
        limits: ServerLimits | None = None,
        *,
        server_header: str = "model-gateway",
        on_protocol_error: Refusal = openai_error,
    ) -> None:
        self.app = app
        self.limits = limits = limits or ServerLimits()
        self.names = HeaderNames()
        self.read_buffer = bytearray(limits.read_buffer)
        self.read_view = memoryview(self.read_buffer)
        self.draining = False
        self.done: asyncio.Future[None]
        self.write_batch: WriteBatch
        self.own_headers = b""
        self.now = 0.0
        self._idle_until = 0.0
        self.tick = min(
            0.5,
            limits.header_timeout / 4,
            limits.keepalive_timeout / 4,
            limits.body_idle_timeout / 4,
            limits.write_timeout / 4,
        )
        self._server_header = server_header
        self._error_answer = on_protocol_error
        self._loop: asyncio.AbstractEventLoop
        self._listener: asyncio.Server | None = None
        self._sock: socket.socket
        self._accepting: set[asyncio.Task[object]] = set()
        self._connections: set[Connection] = set()
        self._watched: set[Connection] = set()
        self._sweeping = False
        self._watching = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket."""
        self._loop = loop = asyncio.get_running_loop()
        self.write_batch = WriteBatch(loop.call_soon)
        self.done = loop.create_future()
        self.done.set_result(None)
        self._read_clock()
        self._sock = sock
        self._listener = await loop.create_server(
            lambda: Connection(self, loop), sock=sock, backlog=self.limits.backlog
        )

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._connections)

    @property
    def busy(self) -> int:
        """How many of them are not idle."""
        return sum(not connection.idle for connection in self._connections)

    def close_listener(self) -> None:
        """Accept no more; connections that are open live on, and those that the kernel queued are still taken."""
        if self._listener is None:
            return
        while (queued := self._next_queued()) is not None:
            accepting = self._loop.connect_accepted_socket(lambda: Connection(self, self._loop), queued)
            task: asyncio.Task[object] = self._loop.create_task(accepting)
            self._accepting.add(task)
            task.add_done_callback(self._accepting.discard)
        self._listener.close()
        self._listener = None

    def _next_queued(self) -> socket.socket | None:
        try:
            return self._sock.accept()[0]
        except OSError:  # nothing queued, or the connection is gone again
            return None

    def close_idle(self) -> None:
        """Close the connections on which nothing of a request has arrived."""
        for connection in list(self._connections):
            connection.close_if_idle(self.now)

    async def drain(self, timeout: float) -> None:
        """Answer what is asked, close what falls idle, and after `timeout` seconds drop what is left.

        Idle connections live for one more tick: a request may be on the way, and is answered with Connection: close.
        """
        self.draining = True
        self._idle_until = self._loop.time() + self.tick
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*self._accepting, return_exceptions=True)
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._empty.wait()

    # What connections ask for.

    def error_answer(self, error: GatewayError, refusal: Refusal | None) -> bytes:
        """The whole answer to a refused request, in its handler's words if it has one; the connection closes after."""
        headers, body = (refusal or self._error_answer)(error)
        lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "connection"]
        lines += [f"Content-Length: {len(body)}", "Connection: close"]
        return "\r\n".join(lines).encode("latin-1") + self.own_headers + body

    def opened(self, connection: Connection) -> None:
        self._connections.add(connection)
        self._empty.clear()
        if not self._sweeping:
            self._sweeping = True
            self._read_clock()
            self._loop.call_later(self.tick, self._sweep)

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._watched.discard(connection)
        if not self._connections:
            self._empty.set()
        self.app.on_close(connection)

    def watch(self, connection: Connection) -> None:
        """Look regularly whether the client of a connection that does not read has left."""
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
        """Enforce the time limits of all connections: one timer, where a timer per request cost 3 µs each."""
        before = self.now
        self._read_clock()
        self.write_batch.empty()  # or what waits there would pass for something that a stalled client has read
        for connection in list(self._connections):
            connection.sweep(self.now)
            if self.draining and self.now >= self._idle_until:
                connection.close_if_idle(before)
        self._sweeping = bool(self._connections)
        if self._sweeping:
            self._loop.call_later(self.tick, self._sweep)

    def _read_clock(self) -> None:
        self.now = self._loop.time()
        self.own_headers = f"\r\nServer: {self._server_header}\r\nDate: {formatdate(usegmt=True)}\r\n\r\n".encode(
            "latin-1"
        )
