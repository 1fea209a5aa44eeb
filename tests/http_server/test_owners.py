"""Connections are counted by address, and the address with the most is found at once."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.http_server import owners as owners_module
from gateway.http_server.client_address import networks
from gateway.http_server.owners import PROXY_WEIGHT, Kind, Owners

NOBODY = ()


class One:
    """A connection."""

    def __init__(self, since: float | None = 0.0) -> None:
        self.since = since

    @property
    def waiting_since(self) -> float | None:
        return self.since

    def displace(self) -> Kind:
        return "idle"


def opened(owners: Owners, address: str, count: int = 1, trusted: Any = NOBODY) -> list[One]:
    connections = [One() for _ in range(count)]
    for connection in connections:
        owners.add(connection, owners.find(address, trusted))
    return connections


def test_ranking_agrees_with_a_plain_count_after_any_opening_closing_and_moving() -> None:
    chance = random.Random(31)
    trusted = networks(("10.0.0.1", "10.0.0.2"))
    owners = Owners()
    truth: dict[One, str] = {}
    for _ in range(5_000):
        address = f"10.0.0.{chance.randrange(12)}"
        if not truth or chance.random() < 0.55:
            [one] = opened(owners, address, trusted=trusted)
            truth[one] = address
        elif chance.random() < 0.3:
            one = chance.choice(list(truth))
            owners.remove(one)
            owners.add(one, owners.find(address, trusted))
            truth[one] = address
        else:
            one = chance.choice(list(truth))
            owners.remove(one)
            owners.remove(one)
            del truth[one]
        names = list(truth.values())
        weights = {
            name: names.count(name) // PROXY_WEIGHT if name in ("10.0.0.1", "10.0.0.2") else names.count(name)
            for name in set(names)
        }
        ranked = [owner.name for owner in owners.ranked()]
        assert sorted(ranked) == sorted(weights)
        assert [weights[name] for name in ranked] == sorted(weights.values(), reverse=True)
        assert len(owners) == len(truth)


@pytest.mark.holds("operations/network.md#connections-3")
def test_addresses_of_one_ipv6_customer_count_together() -> None:
    owners = Owners()
    opened(owners, "2001:db8:0:1::1", 2)
    opened(owners, "2001:db8:0:1:ffff::2", 2)
    opened(owners, "2001:db8:0:2::1", 3)
    assert [len(owner.connections) for owner in owners.ranked()] == [4, 3]


@pytest.mark.holds("operations/network.md#connections-3")
def test_trusted_proxy_of_an_ipv6_network_does_not_count_with_its_neighbours() -> None:
    owners, trusted = Owners(), networks(("2001:db8::1",))
    opened(owners, "2001:db8::1", 9, trusted)
    opened(owners, "2001:db8::2", 2, trusted)
    assert [(owner.name, owner.rank) for owner in owners.ranked()] == [("2001:0db8:0000:0000", 2), ("2001:db8::1", 1)]


def test_first_of_the_addresses_with_the_same_number_comes_first() -> None:
    owners = Owners()
    for last in range(5):
        opened(owners, f"10.0.0.{last}")
    assert next(owners.ranked()).name == "10.0.0.0"


def test_longest_waiting_connection_is_found_and_one_that_is_served_meanwhile_is_not() -> None:
    owners = Owners()
    first, second, third, busy = connections = [One(2.0), One(1.0), One(3.0), One(None)]
    for connection in connections:
        owners.add(connection, owners.find("10.0.0.1", NOBODY))
    owner = owners.find("10.0.0.1", NOBODY)
    assert owner.longest_waiting() is second
    first.since = None  # a request has come
    assert owner.longest_waiting() is third
    assert owner.longest_waiting() is not busy


def test_next_list_comes_after_a_time_that_follows_from_the_length_of_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(owners_module, "time", SimpleNamespace(monotonic=lambda: clock.now))
    owners = Owners()
    ones = [One(None) for _ in range(1000)]
    for one in ones:
        owners.add(one, owners.find("10.0.0.1", NOBODY))
    owner = owners.find("10.0.0.1", NOBODY)
    assert owner.longest_waiting() is None
    ones[0].since = 1.0  # answered
    clock.now += 0.009
    assert owner.longest_waiting() is None
    clock.now += 0.002
    assert owner.longest_waiting() is ones[0]


def test_closed_connections_are_not_kept() -> None:
    owners = Owners()
    for connection in opened(owners, "10.0.0.1", 3):
        owners.remove(connection)
    assert len(owners) == 0
    assert list(owners.ranked()) == []
    assert owners.find("10.0.0.1", NOBODY).connections == set()
