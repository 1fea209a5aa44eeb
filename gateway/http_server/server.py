"""The HTTP server: a `tornado.web.Application`, or any HTTPServerConnectionDelegate, behind a C parser.

    server = HTTPServer(application, ServerLimits(header_timeout=5.0))
    await server.start(bound_socket)
    …
    server.close_listener()
    await server.drain(30.0)

A bare RequestHandler answers about twice as many requests per second as under Tornado's own server
(benchmarks/micro_http.py). With `tls`, every connection begins with a `Handshake`. Sharp edges: there is no HTTP/2
here; a proxy in front can add it. A handler switches to WebSocket by `Exchange.switch`. A client's half-close while its
answer is produced counts as a disconnect.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from collections.abc import Coroutine, Iterator
from http import HTTPStatus
from typing import Any, Final

from tornado.httputil import HTTPServerConnectionDelegate

from gateway.errors import GatewayError, Overloaded
from gateway.http_server.client_address import Network, client_address, is_trusted
from gateway.http_server.connection import Connection
from gateway.http_server.connection_limit import ANSWERED_AT_ONCE, ConnectionLimit, OnFull, Trusted
from gateway.http_server.connection_owner import OpenConnection
from gateway.http_server.exchange import Refusal
from gateway.http_server.handshake import Handshake
from gateway.http_server.handshake_turns import HandshakeTurns
from gateway.http_server.head import RequestHead
from gateway.http_server.limits import ServerLimits
from gateway.http_server.proxy_protocol import PrefaceError, ProxyPreface, receive_preface
from gateway.http_server.server_state import ServerState
from gateway.http_server.socket_listener import SocketListener
from gateway.http_server.tls_state import TlsState
from gateway.log import WarningLimit

log = logging.getLogger("gateway")

# A request takes several turns of the loop, and waits in each of them for what other connections do in it.
ACCEPTED_AT_ONCE: Final = 8  # connections in one turn of the loop, about 0.5 ms, or more after a long turn:
ACCEPTED_A_SECOND: Final = 6_000  # a third of the loop's time; with 8 a turn, 95 of 2,000 waited for 15 s
MOST_ACCEPTED: Final = 256  # in one turn: 15 ms
CROWDED_AT_ONCE: Final = 64  # that are closed unread in one turn of the loop, about as long
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
    proxies send a PROXY header, version 2, before each connection; no other connection is then accepted. `trusted`
    returns the networks of the trusted proxies; `on_full` is told what was closed and refused at the limit. `tls` makes
    it a server of HTTPS. `server_header` is the value of the header Server; empty: none is sent.
    """

    def __init__(
        self,
        app: HTTPServerConnectionDelegate,
        limits: ServerLimits | None = None,
        *,
        server_header: str = "model-gateway",
        on_protocol_error: Refusal = openai_error,
        preface_from: tuple[Network, ...] = (),
        trusted: Trusted = tuple,
        on_full: OnFull | None = None,
        tls: TlsState | None = None,
    ) -> None:
        self.app = app
        self.tls = tls
        self._turns = HandshakeTurns()
        self.state = ServerState(limits or ServerLimits(), server_header=server_header)
        self._preface_from = preface_from
        self._warnings = WarningLimit()
        self._idle_until = 0.0
        self._error_answer = on_protocol_error
        self._trusted = trusted
        self._limit = ConnectionLimit(self.state.limits.max_connections, on_full, trusted=trusted)
        self._loop: asyncio.AbstractEventLoop
        self._listener: asyncio.Server | SocketListener | None = None
        self._sock: socket.socket
        self._accepting: set[asyncio.Task[object]] = set()
        self._accepts_more = False
        self._accepted_at = 0.0  # the time of the loop when the last ones were accepted
        self._connections: set[OpenConnection] = set()
        self._watched: set[OpenConnection] = set()
        self._refused: set[OpenConnection] = set()  # beyond the limit, until they have received their answer
        self._sweeping = False
        self._watching = False
        self._empty = asyncio.Event()
        self._empty.set()

    async def start(self, sock: socket.socket) -> None:
        """Accept connections on a bound socket."""
        self._loop = loop = asyncio.get_running_loop()
        self.state.start(loop)
        self._sock = sock
        if self.tls is not None:
            sock.listen(self.state.limits.backlog)
            self._listener = SocketListener(sock, self._queue_filled)
            return
        # asyncio accepts as many in one turn of the loop as its backlog says.
        self._listener = await loop.create_server(self._accepted, sock=sock, backlog=1)
        sock.listen(self.state.limits.backlog)

    def _accepted(self) -> Connection | ProxyPreface:
        """Called for each connection that the loop accepts."""
        if not self._accepts_more:
            self._accepts_more = True
            self._accepted_at = self._loop.time()
            self._loop.call_soon(self._accept_more)
        return self._new_protocol()

    def _accept_more(self) -> None:
        """Accept further queued connections; the loop accepts one in each of its turns.

        A busy loop has few turns. So many new connections, which may all be of one client, would wait for seconds.
        After a long turn more are accepted, so that their share of the time is the same.
        """
        now, made, crowded = self._loop.time(), 0, 0
        most = min(max(int((now - self._accepted_at) * ACCEPTED_A_SECOND), ACCEPTED_AT_ONCE), MOST_ACCEPTED)
        self._accepted_at = now
        while made < most and crowded < CROWDED_AT_ONCE:
            if self._listener is None or (queued := self._next_queued()) is None:
                self._accepts_more = False
                return
            is_taken = self._take(*queued)
            made, crowded = made + is_taken, crowded + (not is_taken)
        self._loop.call_later(PAUSE, self._accept_more)

    def _queue_filled(self) -> None:
        """Called when a connection waits for a server with TLS."""
        self._accepts_more = True
        self._accepted_at = self._loop.time()
        self._accept_more()

    def _new_protocol(self) -> Connection | ProxyPreface:
        connection = Connection(self, self._loop)
        if not self._preface_from:
            return connection
        timeout = self.state.limits.header_timeout
        return ProxyPreface(connection, self._preface_from, timeout=timeout, on_refused=self._preface_refused)

    def _preface_refused(self, reason: str) -> None:
        if events := self._warnings.due("preface", self._loop.time()):
            log.warning("connections closed because of server.proxy_protocol: %d, the last one: %s", events, reason)

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._connections)

    def close_listener(self, *, accept_queued: bool = True) -> None:
        """Stop listening; open connections stay open.

        Those that the kernel has queued are still accepted, unless they can wait for another process on the socket.
        """
        if self._listener is None:
            return
        while accept_queued and (queued := self._next_queued()) is not None:
            self._take(*queued)
        self._listener.close()
        self._listener = None

    def _take(self, queued: socket.socket, address: Any) -> bool:
        """Make the connection of an accepted socket; False if it is one of a crowd, and was closed."""
        is_counted = self._limit.most and not self._preface_from and isinstance(address, tuple)
        if is_counted and self._limit.is_crowded(address[0]):
            queued.close()
            return False
        if self.tls is None:
            self._keep(self._loop.connect_accepted_socket(self._new_protocol, queued))
            return True
        queued.setblocking(False)
        peer = address[0] if isinstance(address, tuple) else "0.0.0.0"  # noqa: S104
        if self._preface_from:
            self._keep(self._take_preface(queued, peer))
        else:
            Handshake(self, queued, peer).begin()
        return True

    async def _take_preface(self, queued: socket.socket, peer: str) -> None:
        """Read the PROXY header that comes before TLS."""
        try:
            if not is_trusted(peer, self._preface_from):
                raise PrefaceError("it is not in server.trusted_proxies")
            async with asyncio.timeout(self.state.limits.header_timeout):
                announced = await receive_preface(queued)
        except (OSError, PrefaceError) as error:
            queued.close()
            reason = "the PROXY v2 header is late" if isinstance(error, TimeoutError) else str(error)
            self._preface_refused(f"{peer}: {reason}")
        else:
            Handshake(self, queued, announced or peer).begin()

    def _keep(self, work: Coroutine[Any, Any, object]) -> None:
        """Do what makes a connection of an accepted socket."""
        task = self._loop.create_task(work)
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)

    def _next_queued(self) -> tuple[socket.socket, Any] | None:
        if isinstance(self._listener, SocketListener):
            return self._listener.accept()
        try:
            return self._sock.accept()
        except OSError:  # no queued connection, or it was closed again
            return None

    def close_after_answers(self) -> None:
        """Close each connection after its next answer, which says so; idle ones stay open, and new ones are accepted.

        Proxies that keep connections open then open the next one to another gateway.
        """
        self.state.keeps_alive = False

    async def drain(self, timeout: float) -> None:
        """Answer running requests, close idle connections, and drop the others after `timeout` seconds.

        Idle connections stay open for one more tick: a request may be on its way; it gets Connection: close. A server
        that was not started has none.
        """
        self.state.draining, self.state.keeps_alive = True, False
        self._idle_until = asyncio.get_running_loop().time() + self.state.tick
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*self._accepting, return_exceptions=True)
                await self._empty.wait()
        except TimeoutError:
            for connection in list(self._connections):
                connection.abort()
            await self._empty.wait()

    # Methods that handshakes and connections call.

    def handshake_ready(self, handshake: Handshake) -> None:
        self._turns.add(handshake)

    def handshake_failed(self, handshake: Handshake, reason: str, *, of_certificate: bool) -> None:
        """Log it. Operators look for a client without a certificate; other failures are those of strangers."""
        address = handshake.context.remote_ip
        if not of_certificate:
            log.debug("no TLS with %s: %s", address, reason)
        elif events := self._warnings.due("certificate", self._loop.time()):
            log.warning("refused %d connections for their certificate, the last one: %s: %s", events, address, reason)

    def error_answer(self, error: GatewayError, refusal: Refusal | None) -> bytes:
        """The answer to a refused request, made by its handler if it has one; the connection closes afterwards."""
        headers, body = (refusal or self._error_answer)(error)
        lines = [f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items() if name.lower() != "connection"]
        lines += [f"Content-Length: {len(body)}", "Connection: close"]
        return "\r\n".join(lines).encode("latin-1") + self.state.own_headers + body

    def opened(self, connection: OpenConnection) -> None:
        self._connections.add(connection)
        self._empty.clear()
        if not self._sweeping:
            self._sweeping = True
            self.state.read_clock(self._loop)
            self._loop.call_later(self.state.tick, self._sweep)
        if self._limit.most and not self._limit.admit(connection, connection.context.remote_ip):
            self._refuse(connection)

    def _refuse(self, connection: OpenConnection) -> None:
        """There is no room for a new connection."""
        if len(self._refused) >= ANSWERED_AT_ONCE:
            connection.abort()
        else:
            self._refused.add(connection)
            connection.refuse(Overloaded("Too many connections; try again in a moment"))

    def closed(self, connection: OpenConnection) -> None:
        self._connections.discard(connection)
        self._watched.discard(connection)
        self._refused.discard(connection)
        self._limit.remove(connection)
        if not self._connections:
            self._empty.set()
        self.app.on_close(connection)

    def switched(self, connection: OpenConnection, other: OpenConnection) -> None:
        """`other` has taken over the socket of `connection`."""
        self._connections.remove(connection)
        self._connections.add(other)
        self._limit.replace(connection, other)

    def body_awaited(self, connection: OpenConnection, head: RequestHead) -> bool:
        """Count the connection of a trusted proxy for the address that it forwards, if it says one."""
        peer, trusted = connection.context.remote_ip, self._trusted()
        if not self._limit.most or not trusted or not is_trusted(peer, trusted):
            return False
        address = client_address(peer, head.headers.get("X-Forwarded-For", ""), trusted)
        self._limit.move(connection, address)
        return address != peer

    def body_ended(self, connection: OpenConnection) -> None:
        """Count the connection for its peer again."""
        self._limit.move(connection, connection.context.remote_ip)

    def watch(self, connection: OpenConnection) -> None:
        """Check regularly whether the client of a connection that does not read has disconnected."""
        self._watched.add(connection)
        if not self._watching:
            self._watching = True
            self._loop.call_later(WATCH_INTERVAL, self._watch)

    def unwatch(self, connection: OpenConnection) -> None:
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

    def _sweep_some(self, left: Iterator[OpenConnection], before: float) -> None:
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
