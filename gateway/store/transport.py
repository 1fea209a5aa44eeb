"""Opens connections to the store: sockets with their options and TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import Final, TypeVar

from gateway.store.address import RedisAddress

P = TypeVar("P", bound=asyncio.BaseProtocol)
#: Bytes of commands that a Unix socket may hold; the system may allow fewer. What it does not hold is sent in later
#: turns of the loop, one socket full in each. TCP sockets grow by themselves.
LOCAL_BUFFER: Final = 4 * 2**20


class Transport:
    """Opens the connections of one link. Its TLS context is made once, when it is first needed."""

    def __init__(self) -> None:
        self._tls: ssl.SSLContext | None = None

    async def open(self, protocol: Callable[[], P], address: RedisAddress) -> P:
        """The protocol of a new connection; OSError, or ValueError for an unusable certificate file."""
        loop = asyncio.get_running_loop()
        if address.path:
            local, opened = await loop.create_unix_connection(protocol, address.path)
            local.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, LOCAL_BUFFER)
            return opened
        transport, opened = await loop.create_connection(
            protocol, address.host, address.port, ssl=self._context(address) if address.tls else None
        )
        probe_idle(transport.get_extra_info("socket"))
        return opened

    def _context(self, address: RedisAddress) -> ssl.SSLContext:
        if self._tls is None:
            self._tls = tls_context(address)
        return self._tls


def tls_context(address: RedisAddress) -> ssl.SSLContext:
    """The context for an address with TLS; it reads the certificate files."""
    context = ssl.create_default_context(cafile=address.tls_ca or None)
    if not address.tls_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if address.tls_cert:
        context.load_cert_chain(address.tls_cert, address.tls_key or None)
    return context


def probe_idle(sock: socket.socket) -> None:
    """Let the kernel detect within 30 s that a server vanished while no command was pending."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, seconds in (("TCP_KEEPIDLE", 15), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3)):
        if hasattr(socket, option):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), seconds)
