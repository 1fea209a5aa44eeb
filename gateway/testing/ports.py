"""Ports of the loopback for servers that a test or a benchmark starts as processes."""

from __future__ import annotations

import os
import random
import socket
from contextlib import ExitStack
from pathlib import Path

LOCAL_PORTS = Path("/proc/sys/net/ipv4/ip_local_port_range")
DEFAULT_LOCAL_PORTS = 32_768  # the first of them on Linux, where the file cannot be read
LOWEST_PORT = 10_000
_given: set[int] = set()  # by this process


def free_ports(count: int) -> list[int]:
    """Different ports that nobody uses, outside the range from which the system takes the ports of clients.

    A port of that range may become a client's own before the server that it is meant for listens on it. No port is
    given twice in a process, since its server may be between a stop and a start. Each process of pytest-xdist has a
    part of the ports for itself.
    """
    with ExitStack() as stack:
        return [_bound(stack) for _ in range(count)]


def _bound(stack: ExitStack) -> int:
    """A port that stays bound until the stack is closed."""
    ports = _own_ports()
    if len(_given) > len(ports) // 2:
        _given.clear()
    while True:
        port = _candidate(ports)
        if port in _given:
            continue
        sock = stack.enter_context(socket.socket())
        try:
            sock.bind(("127.0.0.1", port))
        except OSError:
            continue
        found = int(sock.getsockname()[1])
        _given.add(found)
        return found


def _candidate(ports: range) -> int:
    """A port at random; 0, which lets the system choose, if it leaves no others."""
    return random.choice(ports) if ports else 0  # noqa: S311 - not a secret


def _own_ports() -> range:
    """The ports of this process: all, or the part of a process of pytest-xdist."""
    try:
        first = int(LOCAL_PORTS.read_text(encoding="utf-8").split()[0])
    except OSError:
        first = DEFAULT_LOCAL_PORTS
    name, count = os.environ.get("PYTEST_XDIST_WORKER", ""), os.environ.get("PYTEST_XDIST_WORKER_COUNT", "")
    number, parts = (int(name[2:]), int(count)) if name and count else (0, 1)
    size = max(first - LOWEST_PORT, 0) // parts
    return range(LOWEST_PORT + number * size, LOWEST_PORT + (number + 1) * size)
