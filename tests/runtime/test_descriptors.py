"""The shares of a process's file descriptors."""

from __future__ import annotations

import resource

import pytest

from gateway.runtime.descriptors import RESERVED, descriptor_limit, raise_limit, shares


@pytest.mark.holds("operations/network.md#connections-1")
@pytest.mark.parametrize("limit", [256, 1024, 20_000, 1 << 20])
def test_clients_never_take_the_descriptors_of_upstreams_and_the_store(limit: int) -> None:
    ours = shares(limit)
    assert ours.connections > 0
    assert ours.uploads > 0
    assert 2 * ours.connections + ours.uploads + RESERVED <= limit


def test_setting_lowers_the_number_of_connections_and_cannot_raise_it() -> None:
    assert shares(20_000, 100).connections == 100
    assert shares(20_000, 100_000) == shares(20_000)


def test_soft_limit_is_raised_to_the_hard_one() -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(before[1], 1000) - 1, before[1]))
        raise_limit()
        assert descriptor_limit() == min(before[1], 1 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
