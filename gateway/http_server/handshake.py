"""One accepted socket until TLS is agreed on; then a `Connection` takes it over.

The socket has no transport until its client has spoken: the first byte tells TLS from plain HTTP without being taken,
and the cryptography of each step waits for a turn (`HandshakeTurns`, `HandshakeGate`). All the time the handshake
counts in the limit of connections like an unfinished request, and `sweep` ends it after `header_timeout`.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from typing import Final, Protocol

from gateway.errors import GatewayError
from gateway.http_server.connection import Connection
from gateway.http_server.connection_owner import ConnectionOwner
from gateway.http_server.handshake_gate import HandshakeGate
from gateway.http_server.owners import Kind
from gateway.http_server.peer import PeerContext, TlsPeer
from gateway.http_server.proxy_protocol import feed
from gateway.http_server.tls_pair import is_resumed_too_late
from gateway.http_server.tls_state import TlsState
from gateway.http_server.tls_transport import TlsTransport

log = logging.getLogger("gateway")

HANDSHAKE: Final = b"\x16"  # the first byte of every client of TLS
PLAIN: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\n"
    b"This port takes HTTPS, not plain HTTP.\n"
)
LATE: Final = "it took too long"
READ_AT_MOST: Final = 65_536  # bytes of a plain request that are taken, so that its client can read the answer


class HandshakeOwner(ConnectionOwner, Protocol):
    """The part of the server that handshakes use."""

    tls: TlsState | None

    def handshake_ready(self, handshake: Handshake) -> None:
        """Its client has sent something: call `shake` in its turn."""

    def handshake_failed(self, handshake: Handshake, reason: str, *, of_certificate: bool) -> None:
        """It has ended without a connection; `of_certificate`: for want of a certificate that is trusted here."""


class Handshake:
    """Begins with an accepted socket that does not block; `address` is the client's."""

    def __init__(self, server: HandshakeOwner, sock: socket.socket, address: str) -> None:
        self.context: PeerContext = TlsPeer(address)
        self._server = server
        self._sock = sock
        self._loop = asyncio.get_running_loop()
        self._since = server.state.now
        self._waits = False  # for its turn: the client has done its part
        self._task: asyncio.Task[None] | None = None
        self._gate: HandshakeGate | None = None
        self._is_begun = False  # the task has begun, and closes the socket
        self.is_over = False  # failed, or a connection has taken over

    def begin(self) -> None:
        """Count it, and wait for the client's first byte."""
        self._server.opened(self)
        if not self.is_over:
            self._loop.add_reader(self._sock, self._readable)

    @property
    def has_begun(self) -> bool:
        """Whether it has had a turn."""
        return self._task is not None

    def shake(self) -> None:
        """Agree on TLS, or go on with it."""
        self._waits = False
        if self._gate is not None:
            self._gate.go_on()
            return
        self._since = self._server.state.now
        self._task = self._loop.create_task(self._shake())

    # The server's side ----------------------------------------------------------------------------------------------

    @property
    def waiting_since(self) -> float | None:
        """Since when it has waited."""
        return self._since

    def displace(self) -> Kind:
        """Close at once for another connection."""
        self.abort()
        return "unfinished"

    def refuse(self, error: GatewayError) -> None:
        """There is no room for it, and no answer without TLS."""
        self.abort()

    def close_if_idle(self, since: float) -> None:
        """Close if it was begun before `since`."""
        if self._since <= since:
            self.abort()

    def abort(self) -> None:
        """Close at once."""
        if self.is_over:
            return
        if self._task is not None:
            self._task.cancel()
        else:
            self._loop.remove_reader(self._sock)
        if not self._is_begun:
            self._sock.close()
        self._end()

    def client_is_gone(self) -> bool:
        """Never asked: nothing pauses here."""
        return False

    def sweep(self, now: float) -> None:
        """Enforce the time limit."""
        if not self._waits and now - self._since > self._server.state.limits.header_timeout:
            self._fail(LATE)

    # Steps ----------------------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        self._loop.remove_reader(self._sock)
        try:
            first = self._sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            self._loop.add_reader(self._sock, self._readable)
            return
        except OSError:
            first = b""
        if first == HANDSHAKE:
            self._wait()
        elif first:
            self._answer_plainly()
            self._fail("the client sent plain HTTP, or something else that is not TLS")
        else:
            self._fail("the client left")

    def _answer_plainly(self) -> None:
        """Say that this is TLS; the request is taken first, because a close with unread bytes drops the answer."""
        try:
            self._sock.recv(READ_AT_MOST)
            self._sock.send(PLAIN)
            self._sock.shutdown(socket.SHUT_WR)
        except OSError:
            return

    async def _shake(self) -> None:
        self._is_begun = True
        raw: asyncio.Transport | None = None
        try:
            opened = await self._loop.connect_accepted_socket(_Early, self._sock)
            raw, before = opened
            after = _Early()
            transport = await self._encrypted(raw, before, after)
            if transport is None or after.is_lost:
                raise ConnectionResetError("the client left")
        except OSError as error:  # SSLError and TimeoutError among them
            self._drop(raw)
            self._fail(*_reason(error))
        except BaseException:
            self._drop(raw)
            raise
        else:
            self._hand_over(raw, transport, after)

    async def _encrypted(self, raw: asyncio.Transport, before: _Early, after: _Early) -> asyncio.Transport | None:
        """The transport with TLS above `raw`; None if the client has left.

        uvloop may have read bytes before `start_tls` has put its own protocol there: that one gets them from here.
        """
        tls, limits = self._server.tls, self._server.state.limits
        assert tls is not None
        shaking = self._loop.create_task(
            self._loop.start_tls(
                *(raw, after, tls.context),
                server_side=True,
                ssl_handshake_timeout=limits.header_timeout,
                ssl_shutdown_timeout=limits.linger_timeout,
            )
        )
        try:
            for _ in range(2):  # turns of the loop: in the second one `connection_made` of its protocol is called
                await asyncio.sleep(0)
            if not shaking.done():
                self._gate = HandshakeGate(raw, self._wait, has_turn=True)
                if before.taken:
                    self._gate.take(before.taken)
            transport = await shaking
            if transport is not None and is_resumed_too_late(transport.get_extra_info("ssl_object")):
                raise _ExpiredError("resumed")
            if self._gate is not None:
                self._gate.open()
            return transport
        finally:
            shaking.cancel()

    def _wait(self) -> None:
        self._waits = True
        self._server.handshake_ready(self)

    def _hand_over(self, raw: asyncio.Transport, transport: asyncio.Transport, after: _Early) -> None:
        self.is_over = True
        connection, transport = Connection(self._server, self._loop), TlsTransport(transport, raw)
        transport.set_protocol(connection)
        after.successor = connection
        connection.connection_made(transport, handshake=self)
        feed(connection, transport, after.taken)

    def _drop(self, raw: asyncio.Transport | None) -> None:
        if raw is not None:
            raw.abort()
        else:
            self._sock.close()

    def _fail(self, reason: str, of_certificate: bool = False) -> None:
        if not self.is_over:
            self._server.handshake_failed(self, reason, of_certificate=of_certificate)
            if self._task is not None and self._task is asyncio.current_task():
                self._end()
            else:
                self.abort()

    def _end(self) -> None:
        self.is_over = True
        self._server.closed(self)


class _ExpiredError(OSError):
    """The client's certificate expired since its session began."""


class _Early(asyncio.Protocol):
    """Keeps what arrives before the protocol that it is for is there.

    The loss of a client that left at once may be scheduled before `successor` takes over, and arrive here afterwards.
    """

    def __init__(self) -> None:
        self.taken = b""
        self.is_lost = False
        self.successor: Connection | None = None

    def data_received(self, data: bytes) -> None:
        self.taken += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True
        if self.successor is not None:
            self.successor.connection_lost(exc)


def _reason(error: OSError) -> tuple[str, bool]:
    """What went wrong, in words without addresses, and whether the client's certificate is to blame."""
    reason = getattr(error, "reason", None)
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return "the client has no certificate", True
    if isinstance(error, _ExpiredError):
        return "the client's certificate is not trusted: certificate has expired", True
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is not trusted: {error.verify_message}", True
    if isinstance(error, ssl.SSLError):
        return f"no TLS: {str(reason or 'unknown').lower().replace('_', ' ')}", False
    if isinstance(error, (TimeoutError, ConnectionAbortedError)):
        return LATE, False
    return "the client left", False
