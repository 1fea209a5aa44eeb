"""The TLS context and the socket options of connections to the store."""

from __future__ import annotations

import socket
import ssl

from gateway.store.redis_address import RedisAddress


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
