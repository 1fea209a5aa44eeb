"""Names in an order beside their set: made once, kept by additions, completed when an older version added some."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

import pytest

from gateway.ids import key_order
from gateway.ledger.listing.names import ACCOUNT_ORDER, ACCOUNTS, account_names, key_ids
from gateway.ledger.listing.ordered_set import SMALL, OrderedSet
from gateway.store import Store
from gateway.store.slots import slot_of
from tests.world import OpenWorld

MANY = 3 * SMALL


async def fill(names: OrderedSet, some: Iterable[str]) -> None:
    """Add names as a version without orders does."""
    await names.link.call("SADD", names.name, *some)


def numbered(count: int) -> list[str]:
    names = [f"name-{number:06}" for number in range(count)]
    Random(7).shuffle(names)
    return names


async def walked(names: OrderedSet, *, size: int = 7, backwards: bool = False) -> list[str]:
    found, after = list[str](), ""
    while some := await names.page(after=after, limit=size, backwards=backwards):
        found += some
        after = some[-1]
    return found


@pytest.mark.parametrize("count", [0, 1, SMALL, SMALL + 1, MANY])
@pytest.mark.parametrize("backwards", [False, True])
async def test_pages_have_every_name_once_in_order(store: Store, count: int, backwards: bool) -> None:
    names = account_names(store)
    if count:
        await fill(names, numbered(count))
    assert await walked(names, size=99, backwards=backwards) == sorted(numbered(count), reverse=backwards)
    assert [name async for some in names.pages(size=99, backwards=backwards) for name in some] == sorted(
        numbered(count), reverse=backwards
    )


@pytest.mark.parametrize("count", [SMALL, MANY])
async def test_page_begins_behind_a_name_that_does_not_exist(store: Store, count: int) -> None:
    names = account_names(store)
    await fill(names, numbered(count))
    assert await names.page(after="name-000003x", limit=2) == ["name-000004", "name-000005"]
    assert await names.page(after="name-000003x", limit=2, backwards=True) == ["name-000003", "name-000002"]
    assert await names.near("name-000003x", 4) in (
        ["name-000002", "name-000003", "name-000004", "name-000005"],
        ["name-000003", "name-000002", "name-000004", "name-000005"],
    )


async def test_ids_of_keys_go_by_length_then_by_characters(store: Store) -> None:
    ids = [f"key_{number:x}" for number in range(0, 16 * MANY, 16)] + ["z" * 64, "key_" + "a" * 18]
    names = key_ids(store, "acme")
    await fill(names, ids)
    assert await walked(names, size=500) == sorted(ids, key=key_order)


async def test_additions_keep_the_order(store: Store) -> None:
    names = account_names(store)
    await fill(names, numbered(MANY))
    await names.page(limit=1)
    await names.add("between")
    await names.add("between")
    await fill(names, ["name-000001"])
    assert await names.page(limit=2) == ["between", "name-000000"]
    assert await store.client.zcard(ACCOUNT_ORDER) == MANY + 1
    await names.remove("between")
    assert await names.page(limit=1) == ["name-000000"]


async def test_small_set_has_no_order(store: Store) -> None:
    names = account_names(store)
    await names.add("one")
    assert await names.page(limit=1) == ["one"] and not await store.client.exists(ACCOUNT_ORDER)


async def test_names_that_a_version_without_orders_added_or_removed_are_found(store: Store) -> None:
    names = account_names(store)
    await fill(names, numbered(MANY))
    await names.page(limit=1)
    await fill(names, ["aaa"])
    assert (await names.page(limit=1)) == ["aaa"]
    await store.client.srem(ACCOUNTS, "aaa", "name-000000")
    assert (await names.page(limit=1)) == ["name-000001"]
    assert await names.differences() == []


async def test_additions_while_an_order_is_made_are_in_it(store: Store) -> None:
    names = account_names(store)
    await fill(names, numbered(MANY))
    new = [f"new-{number}" for number in range(50)]
    await asyncio.gather(*(names.page(limit=1) for _ in range(3)), *map(names.add, new))
    assert await walked(names, size=500) == sorted(numbered(MANY) + new)
    assert await store.client.zcard(ACCOUNT_ORDER) == MANY + len(new)


async def test_order_that_cannot_be_written_is_done_without(store: Store) -> None:
    names = account_names(store)
    await fill(names, numbered(MANY))
    await store.client.config_set("maxmemory", 1)
    try:
        assert await names.page(limit=2) == ["name-000000", "name-000001"]
    finally:
        await store.client.config_set("maxmemory", 0)


async def test_audit_finds_an_order_with_other_names(store: Store) -> None:
    names = account_names(store)
    await fill(names, numbered(MANY))
    await names.page(limit=1)
    await store.client.zrem(ACCOUNT_ORDER, "name-000007")
    assert await names.differences() == []  # it is not used
    await store.client.zadd(ACCOUNT_ORDER, {"other": 0})
    assert await names.differences() == ["name-000007", "other"]


async def test_order_is_in_the_slot_of_its_set(store: Store) -> None:
    for names in (account_names(store), key_ids(store, "acme"), key_ids(store, "acme", "usr_1")):
        assert slot_of(names.name) == slot_of(names.order)


@pytest.mark.holds("operations/audit.md#audit-29")
async def test_audit_of_the_store_names_both_orders(world: OpenWorld) -> None:
    async with world() as w:
        await w.accounts.create("acme")
        names, ids = account_names(w.store), key_ids(w.store, "acme")
        for some, added in ((names, numbered(MANY)), (ids, [f"key_{number:06}" for number in range(MANY)])):
            await fill(some, added)
            await some.page(limit=1)
            assert await w.store.client.zrem(some.order, some.written(added[0]))
            await w.store.client.zadd(some.order, {some.written("other"): 0})
        found = {(one.account, one.rule) for one in (await w.ledger.audit()).mismatches}
        assert {("*", "order"), ("acme", "order")} <= found
