"""The events of one account push out neither those of another account nor those of the gateway."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.metrics import Metrics
from gateway.notifications import events
from gateway.notifications import queue as queues
from gateway.notifications.events import Condition, Event, new_event
from gateway.notifications.notifier import Notifier
from gateway.notifications.queue import CREATED, DELIVERIES, DUE, FAILED, Queue
from tests.notifications.conftest import Notifying
from tests.world import UNIT


async def happen(n: Notifying, account: str, number: int = 1, type_: str = "balance.low") -> list[Event]:
    """Events of an account, or with "" of the gateway."""
    made = [new_event(type_, {"account": account}, account=account) for _ in range(number)]
    for event in made:
        noted = await n.queue.note([Condition(type_, event.id, 1, event.data, account=account)], event, ["webhook"])
        assert noted.is_queued
    return made


async def waiting(n: Notifying) -> list[tuple[str, str]]:
    """The accounts and ids of the events that wait."""
    return [(delivery.event.account, delivery.event.id) for delivery in await n.deliveries()]


async def soon_to_expire(n: Notifying, account: str, number: int) -> list[str]:
    """Keys that expire within a week."""
    expires, made = datetime.now(UTC) + timedelta(days=6), []
    for count in range(number):
        key = await n.world.keys.create(account, name=f"ci {count}", expires=expires + timedelta(minutes=count))
        await n.world.store.client.hset(f"{{a:{account}}}:k:{key.id}", "created", 0)
        made.append(key.id)
    return made


@pytest.mark.holds("notifications.md#events-3", "security.md#shares-1")
async def test_many_keys_of_an_account_are_one_event(notifying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_LISTED", 3)
    async with notifying(events=["key.expiring"]) as n:
        await n.world.accounts.create("acme", balance=100 * UNIT)
        await n.world.accounts.create("other", balance=100 * UNIT)
        keys, others = await soon_to_expire(n, "acme", 5), await soon_to_expire(n, "other", 1)
        await n.sweep()
        found = {data["account"]: data for _, data in await n.events()}
        assert [found["acme"][name] for name in ("count", "keys", "key", "name")] == [5, keys[:3], keys[0], "ci 0"]
        assert [found["other"][name] for name in ("count", "keys", "key")] == [1, others, others[0]]
        await n.sweep()
        late = await soon_to_expire(n, "acme", 1)
        await n.sweep()
        assert sorted(data["count"] for _, data in await n.events()) == [1, 1, 5]
        assert late in [data["keys"] for _, data in await n.events()]


async def test_event_has_a_limited_number_of_keys(notifying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "MOST_TOGETHER", 4)
    async with notifying(events=["key.expiring"]) as n:
        await n.world.accounts.create("acme", balance=100 * UNIT)
        keys = await soon_to_expire(n, "acme", 9)
        await n.sweep()
        assert sorted(data["count"] for _, data in await n.events()) == [1, 4, 4]
        assert sorted(key for _, data in await n.events() for key in data["keys"]) == sorted(keys)


@pytest.mark.holds("notifications.md#events-3")
async def test_keys_that_two_machines_note_at_once_are_each_in_one_event(notifying) -> None:
    async with notifying(events=["key.expiring"]) as n:
        notifiers = [Notifier(Queue(n.world.store), n.settings.notify, Metrics()) for _ in range(4)]

        def conditions(first: int) -> list[Condition]:
            names = [f"key_{number}" for number in range(first, first + 20)]
            return [Condition("key.expiring", name, 1, {}, account="acme", of_key=True) for name in names]

        await asyncio.gather(*(one.report(conditions(10 * number)) for number, one in enumerate(notifiers)))
        told = [key for _, data in await n.events() for key in data["keys"]]
        assert sorted(told) == sorted(f"key_{number}" for number in range(50))


@pytest.mark.holds("notifications.md#delivery-2", "security.md#shares-1")
async def test_account_with_many_events_drops_its_own_oldest_only(notifying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "SHARE", 5)
    async with notifying() as n:
        [quiet] = await happen(n, "quiet")
        loud = await happen(n, "loud", 12)
        assert sorted(await waiting(n)) == sorted([("quiet", quiet.id), *(("loud", one.id) for one in loud[-5:])])


@pytest.mark.holds("notifications.md#delivery-2", "security.md#shares-1")
async def test_full_queue_drops_those_of_the_account_that_has_most(notifying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "MOST", 10)
    async with notifying() as n:
        [first] = await happen(n, "quiet")
        await happen(n, "loud", 20)
        await happen(n, "middle", 4)
        [last] = await happen(n, "late")
        found = await waiting(n)
        assert {first.id, last.id} <= {id_ for _, id_ in found}
        assert sorted(account for account, _ in found) == ["late"] + ["loud"] * 4 + ["middle"] * 4 + ["quiet"]


@pytest.mark.holds("notifications.md#delivery-2", "security.md#shares-1")
async def test_events_of_the_gateway_are_not_dropped_for_those_of_accounts(
    notifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MOST", 6)
    async with notifying() as n:
        own = await happen(n, "", 3, "circuit.opened")
        for number in range(10):
            await happen(n, f"a{number}", 2)
        found = await waiting(n)
        assert len(found) == 6 and {one.id for one in own} <= {id_ for _, id_ in found}
        more = await happen(n, "", 5, "circuit.opened")
        assert sorted(id_ for _, id_ in await waiting(n)) == sorted(one.id for one in (*own, *more)[-6:])


@pytest.mark.holds("notifications.md#delivery-2")
async def test_failed_deliveries_of_one_account_push_out_no_others(notifying, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queues, "SHARE_FAILED", 2)
    async with notifying() as n:
        await happen(n, "", 1, "circuit.opened")
        await happen(n, "quiet")
        await happen(n, "loud", 5)
        for delivery in await n.queue.claim(100):
            await n.queue.fail(delivery)
        accounts = sorted(delivery.event.account for delivery, _ in await n.queue.failed(100))
        assert accounts == ["", "loud", "loud", "quiet"]
        assert await n.queue.try_again() == 4
        assert sorted(account for account, _ in await waiting(n)) == accounts
        assert await n.queue.counts() == (4, 0)


async def test_addressing_the_owners_of_an_account_counts_for_its_share(
    notifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "SHARE", 5)
    async with notifying() as n:
        await happen(n, "quiet")
        await happen(n, "loud")
        loud = next(one for one in await n.queue.claim(2) if one.event.account == "loud")
        assert await n.queue.done(loud, instead=[f"owner:usr_{number}" for number in range(8)]) == 3
        assert sorted(account for account, _ in await waiting(n)) == ["loud"] * 5 + ["quiet"]


async def test_deliveries_of_a_version_before_count_for_their_accounts(
    notifying, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with notifying() as n:
        old = await happen(n, "loud", 8) + await happen(n, "", 1, "circuit.opened")
        client = n.world.store.client
        indexes = [name async for name in client.scan_iter("{notify}:created:*")]
        await client.delete(*indexes)
        n.queue = Queue(n.world.store)  # a new process
        monkeypatch.setattr(queues, "MOST", 8)
        [one] = await happen(n, "quiet")
        assert sorted(account for account, _ in await waiting(n)) == ["", *["loud"] * 6, "quiet"]
        monkeypatch.setattr(queues, "SHARE", 2)
        await happen(n, "loud")
        found = await waiting(n)
        assert {old[-1].id, one.id} <= {id_ for _, id_ in found}
        assert sorted(account for account, _ in found) == ["", "loud", "loud", "quiet"]


async def test_queue_that_is_empty_leaves_nothing_in_the_store(notifying) -> None:
    async with notifying() as n:
        await happen(n, "acme", 3)
        await happen(n, "", 2, "circuit.opened")
        for delivery in await n.queue.claim(100):
            await n.queue.done(delivery)
        names: list[Any] = [name async for name in n.world.store.client.scan_iter("{notify}:*")]
        assert [name for name in names if b":state:" not in name] == []
        assert await n.queue.counts() == (0, 0) and {DUE, DELIVERIES, CREATED, FAILED}.isdisjoint(names)
