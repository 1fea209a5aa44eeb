"""Ports of the loopback for servers that a test or a benchmark starts as processes."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_LOCAL_PORTS = 32_768  # the first of them on Linux, where the file cannot be read
LOWEST_PORT = 10_000


def free_ports(count: int) -> list[int]:
    """Different ports that nobody uses, outside the range from which the system takes the ports of clients.

    A port of that range may become a client's own before the server that it is meant for listens on it.
    """
    with ExitStack() as stack:
        return [_bound(stack) for _ in range(count)]


def _bound(stack: ExitStack) -> int:
    """A port that stays bound until the stack is closed."""
    while True:
        sock = stack.enter_context(socket.socket())
        try:
            sock.bind(("127.0.0.1", _candidate()))
        except OSError:
            continue
        return int(sock.getsockname()[1])


def _candidate() -> int:
    """A port at random; 0, which lets the system choose, if it leaves no others."""
    try:
        first = int(LOCAL_PORTS.read_text(encoding="utf-8").split()[0])
    except OSError:
        first = DEFAULT_LOCAL_PORTS
    return random.randrange(LOWEST_PORT, first) if first > LOWEST_PORT else 0  # noqa: S311 - not a secret
