"""Listening sockets: one per worker on the same port; the kernel distributes connections over them."""

from __future__ import annotations

import asyncio
import errno
import socket

from gateway.config.settings import ConsoleSettings
from gateway.log import gateway_log

Address = tuple[str, int]

CONSOLE_BACKLOG = 128  # connections that wait while the console process starts
BIND_WITHIN = 1.0  # seconds for the workers of a killed supervisor to release the port


def bind_all(host: str, port: int, count: int) -> list[socket.socket]:
    """`count` bound sockets on one address; port 0 takes one free port for all. OSError names the address.

    They do not listen yet: the kernel sends connections to a socket only after `listen`.
    """
    family, address = _resolve(host, port)
    sockets: list[socket.socket] = []
    try:
        if count > 1 and port:
            # Sockets with SO_REUSEPORT can always share the port; only one without it detects that the port is taken.
            _bind(family, address, shared=False).close()
        for _ in range(count):
            sockets.append(_bind(family, address, shared=count > 1))
            address = sockets[0].getsockname()
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    return sockets


async def bind_console(console: ConsoleSettings) -> socket.socket | None:
    """The listening socket of the console; None if it is off."""
    if not console.enabled:
        return None
    [listener] = await bind_soon(console.host, console.port, 1)
    listener.listen(CONSOLE_BACKLOG)  # connections wait while the process starts
    return listener


def bind_again(sock: socket.socket) -> socket.socket:
    """A new socket on the address of one that shares its port; the old one is closed with its queued connections."""
    fresh = _bind(sock.family, sock.getsockname(), shared=True)
    sock.close()
    return fresh


def is_shared(sock: socket.socket) -> bool:
    """Whether other sockets share its port."""
    return sock.getsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT) != 0


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(error.errno, f"cannot listen on {host}:{port}: {error.strerror}") from None
    return infos[0][0], infos[0][4]  # type: ignore[return-value]


def _bind(family: int, address: tuple[str, int], *, shared: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            # Only where several workers share the port: with it, a second gateway could take the same port unnoticed.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def log_addresses(scheme: str, api: Address, side: Address, console: Address | None) -> None:
    """Log where the ports are, which a configuration with port 0 does not say."""
    gateway_log.info("serving on %s://%s:%d/v1, metrics on http://%s:%d/metrics", scheme, *api, *side)
    if console is not None:
        gateway_log.info("console and admin API on %s://%s:%d", scheme, *console)


async def bind_soon(host: str, port: int, count: int) -> list[socket.socket]:
    """`bind_all`, again for a second while the port is taken; OSError."""
    deadline = asyncio.get_running_loop().time() + BIND_WITHIN
    while True:
        try:
            return bind_all(host, port, count)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)
