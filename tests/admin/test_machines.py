"""The gateways of one store: each writes its entry, and one that has ended is not shown."""

from __future__ import annotations

import pytest
from msgspec import json, structs

from gateway.admin.machines import GONE_AFTER, HASH, KnownMachines, Machine, announce, differ, read_machines, withdraw
from tests.world import OpenWorld

ONE, TWO = Machine("1", "one:8080", "aaa", "1.0"), Machine("2", "two:8080", "bbb", "1.0")


async def test_machines_that_differ_are_seen_until_one_of_them_ends(world: OpenWorld) -> None:
    async with world() as w:
        known = KnownMachines(w.store)
        for machine in (TWO, ONE):
            await announce(w.store, machine)
        found = await known.refresh()
        assert [(one.name, one.configuration) for one in found] == [("one:8080", "aaa"), ("two:8080", "bbb")]
        assert known.differ
        assert found[0].json_form()["seen"].endswith("Z")
        await withdraw(w.store, TWO)
        await known.refresh()
        assert not known.differ


@pytest.mark.holds("operations/machines.md#several-machines-1")
async def test_entry_that_is_not_renewed_lapses_and_is_removed_by_another_machine(world: OpenWorld) -> None:
    async with world() as w:
        await announce(w.store, ONE)
        [entry] = await read_machines(w.store)
        old = structs.replace(TWO, at=entry.at - GONE_AFTER - 1)
        await w.store.client.hset(HASH, TWO.id, json.encode(old))
        assert [one.name for one in await read_machines(w.store)] == ["one:8080"]
        await announce(w.store, ONE)
        assert await w.store.client.hkeys(HASH) == [b"1"]


async def test_entry_of_another_release_is_left_alone(world: OpenWorld) -> None:
    async with world() as w:
        await w.store.client.hset(HASH, "x", b"[]")
        await announce(w.store, ONE)
        assert len(await read_machines(w.store)) == 1
        assert await w.store.client.hlen(HASH) == 2


def test_machines_with_one_configuration_do_not_differ() -> None:
    assert not differ([])
    assert not differ([ONE, structs.replace(TWO, configuration="aaa")])
    assert differ([ONE, TWO])
