"""Listening sockets: one per worker on the same port, which the kernel spreads connections over."""

from __future__ import annotations

import socket


def bind_all(host: str, port: int, count: int) -> list[socket.socket]:
    """`count` bound sockets on one address; port 0 takes a free one for all. OSError names the address."""
    family, address = _resolve(host, port)
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sock = _bind(family, address, shared=count > 1)
            sockets.append(sock)
            address = sock.getsockname()
    except OSError as error:
        for sock in sockets:
            sock.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return sockets


def _resolve(host: str, port: int) -> tuple[socket.AddressFamily, tuple[str, int]]:
    try:
        infos = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror}") from None
    return infos[0][0], infos[0][4]  # type: ignore[return-value]


def _bind(family: socket.AddressFamily, address: tuple[str, int], *, shared: bool) -> socket.socket:
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
