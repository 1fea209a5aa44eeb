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
    monkeypatch.setattr(ports, "_given", set[int]())
    answers = iter([taken, taken, 0])
    monkeypatch.setattr(ports, "_candidate", lambda own: next(answers))
    with socket.socket() as server:
        server.bind(("127.0.0.1", taken))
        assert free_ports(1) != [taken]


def test_port_is_not_given_again_while_nobody_listens_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = free_ports(2)
    monkeypatch.setattr(ports, "_given", {first})
    answers = iter([first, first, second])
    monkeypatch.setattr(ports, "_candidate", lambda own: next(answers))
    assert free_ports(1) == [second]


def test_processes_of_one_run_of_tests_get_different_ports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER_COUNT", "4")
    parts = []
    for number in range(4):
        monkeypatch.setenv("PYTEST_XDIST_WORKER", f"gw{number}")
        parts.append(set(ports._own_ports()))
        assert set(free_ports(20)) <= parts[-1]
    assert len(set.union(*parts)) == sum(map(len, parts)) > 10_000


def test_ports_can_be_given_after_all_of_them_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_own_ports", lambda: range(ports.LOWEST_PORT, ports.LOWEST_PORT + 40))
    assert len({port for _ in range(200) for port in free_ports(1)}) > 20
