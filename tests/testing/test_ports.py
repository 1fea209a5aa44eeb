"""Ports for servers that a test starts as processes."""

from __future__ import annotations

import socket

import pytest

from gateway.testing import ports
from gateway.testing.ports import free_ports


def test_free_ports_differ_and_are_outside_the_range_of_the_systems_own() -> None:
    first, last = map(int, ports.LOCAL_PORTS.read_text().split())
    found = free_ports(40)
    assert len(set(found)) == 40
    for port in found:
        assert not first <= port <= last
        with socket.socket() as server:
            server.bind(("127.0.0.1", port))


def test_free_port_is_not_one_that_somebody_has_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    [taken] = free_ports(1)
    answers = iter([taken, taken, 0])
    monkeypatch.setattr(ports, "_candidate", lambda: next(answers))
    with socket.socket() as server:
        server.bind(("127.0.0.1", taken))
        assert free_ports(1) != [taken]
