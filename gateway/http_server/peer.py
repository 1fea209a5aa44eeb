"""The client at the other end of a connection, and options and state of its socket."""

from __future__ import annotations

import asyncio
import logging
import socket
import struct
import sys
from typing import ClassVar, Final

log = logging.getLogger(__name__)

NO_LINGER: Final = struct.pack("ii", 1, 0)  # SO_LINGER: close with RST
TCP_GONE: Final = (7, 8)  # TCP_INFO states of Linux: CLOSE, and CLOSE_WAIT, which is a FIN behind unread bytes


class PeerContext:
    """The client's address, which Tornado copies into each request.

    `announced` is the address that a proxy has sent before the connection's bytes, if one has.
    """

    __slots__ = ("remote_ip",)
    protocol: ClassVar[str] = "http"

    def __init__(self, transport: asyncio.BaseTransport, announced: str = "") -> None:
        address = transport.get_extra_info("peername")
        peer: str = address[0] if isinstance(address, tuple) else "0.0.0.0"  # noqa: S104
        self.remote_ip = announced or peer


class TlsPeer(PeerContext):
    """The client of a connection with TLS."""

    __slots__ = ()
    protocol = "https"

    def __init__(self, address: str) -> None:
        self.remote_ip = address


def disable_nagle(sock: socket.socket) -> None:
    """Send small writes at once; asyncio leaves Nagle's algorithm on for listeners without a protocol number."""
    if sock.family in (socket.AF_INET, socket.AF_INET6):
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:  # macOS: the client has disconnected already; connection_lost follows
            log.debug("TCP_NODELAY refused for file descriptor %d", sock.fileno())


def reset_on_close(sock: socket.socket) -> None:
    """Make the close of this socket send RST instead of FIN."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, NO_LINGER)


def peer_is_gone(sock: socket.socket) -> bool:
    """Whether the kernel has received a FIN or RST, which a paused reader does not see. Always False outside Linux."""
    if not sys.platform.startswith("linux") or sock.family == socket.AF_UNIX:
        return False
    return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] in TCP_GONE
