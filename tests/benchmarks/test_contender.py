"""What contenders share."""

from __future__ import annotations

import socket

from benchmarks.contenders.contender import LOCAL_PORTS, free_port


def test_port_of_a_contender_is_free_and_outside_the_ephemeral_range() -> None:
    first, last = map(int, LOCAL_PORTS.read_text().split())
    for _ in range(20):
        port = free_port()
        assert not first <= port <= last
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))
