"""The PROXY protocol, version 2: a load balancer that forwards TCP sends the client's address before its bytes.

A `ProxyPreface` reads this header, then gives the connection to its `Connection`, which does not know of it. Only
trusted proxies may send the header; any other peer, and any other first bytes, close the connection. Sharp edge: with
it every connection must begin with the header, because a client could otherwise write one itself.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable
from typing import Final, cast

from gateway.http_server.client_address import Network, is_trusted
from gateway.http_server.connection import Connection
from gateway.http_server.peer import PeerContext

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
FIXED: Final = 16  # bytes before the addresses
LONGEST: Final = FIXED + 4096  # bytes; addresses and a certificate's name take some hundred
LOCAL, PROXY = 0x20, 0x21  # version and command
ADDRESS_BYTES: Final = {1: 4, 2: 16}  # by address family: IPv4, IPv6


class PrefaceError(ValueError):
    """The first bytes are no header of this protocol."""


def read_preface(data: bytes) -> tuple[str, int] | None:
    """The client's address, "" if the proxy itself connects, and the header's length; None if bytes are missing."""
    if not data.startswith(SIGNATURE[: len(data)]):
        raise PrefaceError("no PROXY v2 signature")
    if len(data) < FIXED:
        return None
    command, family, length = data[12], data[13], int.from_bytes(data[14:16], "big")
    end = FIXED + length
    if command not in (LOCAL, PROXY) or end > LONGEST:
        raise PrefaceError("a PROXY v2 header that is not supported")
    if len(data) < end:
        return None
    size = ADDRESS_BYTES.get(family >> 4)
    if command == LOCAL or size is None:
        return "", end
    if length < 2 * size + 4:
        raise PrefaceError("a PROXY v2 header without its addresses")
    return str(ipaddress.ip_address(data[FIXED : FIXED + size])), end


async def receive_preface(sock: socket.socket) -> str:
    """The client's address, "" if the proxy itself connects; PrefaceError. What follows the header stays unread."""
    loop, data = asyncio.get_running_loop(), b""
    while (found := read_preface(data)) is None:
        end = FIXED if len(data) < FIXED else FIXED + int.from_bytes(data[14:16], "big")
        piece = await loop.sock_recv(sock, end - len(data))
        if not piece:
            raise PrefaceError("closed before the PROXY v2 header")
        data += piece
    return found[0]


def feed(connection: asyncio.BufferedProtocol, transport: asyncio.Transport, data: bytes) -> None:
    """Give a connection what its client has sent before it was made."""
    while data and not transport.is_closing():
        view = memoryview(connection.get_buffer(len(data)))
        size = min(len(view), len(data))
        view[:size] = data[:size]
        connection.buffer_updated(size)
        data = data[size:]


class ProxyPreface(asyncio.BufferedProtocol):
    """The protocol of a connection until its header has arrived."""

    def __init__(
        self, connection: Connection, trusted: tuple[Network, ...], *, timeout: float, on_refused: Callable[[str], None]
    ) -> None:
        self._connection = connection
        self._trusted = trusted
        self._timeout = timeout  # seconds until the header must have arrived
        self._on_refused = on_refused
        self._buffer = bytearray(LONGEST)
        self._size = 0
        self._transport: asyncio.Transport
        self._timer: asyncio.TimerHandle | None = None
        self._peer = ""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._peer = PeerContext(transport).remote_ip
        if not is_trusted(self._peer, self._trusted):
            self._refuse(f"{self._peer} is not in server.trusted_proxies")
            return
        self._timer = self._connection.loop.call_later(self._timeout, self._refuse, "the PROXY v2 header is late")

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._size :]

    def buffer_updated(self, nbytes: int) -> None:
        self._size += nbytes
        data = bytes(self._buffer[: self._size])
        try:
            found = read_preface(data)
        except PrefaceError as error:
            self._refuse(f"{self._peer}: {error}")
            return
        if found is not None:
            self._hand_over(found[0], data[found[1] :])

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()

    def _hand_over(self, address: str, rest: bytes) -> None:
        self._stop_timer()
        connection = self._connection
        self._transport.set_protocol(connection)
        connection.connection_made(self._transport, address)
        feed(connection, self._transport, rest)

    def _refuse(self, reason: str) -> None:
        self._stop_timer()
        self._on_refused(reason)
        self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
