"""Each crossing of an account or a key is one event; what ends the condition arms it again."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from gateway.admin.account_limits import AccountLimits
from gateway.notifications import account_watch
from gateway.notifications.account_conditions import DAY, KeyFacts, key_conditions
from gateway.notifications.account_watch import AccountWatch
from tests.ledger.records import settle
from tests.notifications.conftest import Notifying
from tests.world import UNIT


async def spend(n: Notifying, key: Any, amount: int) -> None:
    """A call of that cost."""
    await settle(n.world.ledger, await n.world.admit(key, amount), amount)


@pytest.mark.holds("notifications.md#events-5")
async def test_low_balance_is_one_event_until_a_top_up(notifying) -> None:
    async with notifying() as n:
        key = await n.world.caller(balance=10 * UNIT)
        await n.sweep()
        assert await n.events() == []
        await spend(n, key, 6 * UNIT)
        n.accounts.touch(["acme"])
        await n.accounts.step()
        shown = {"account": "acme", "balance": "4", "available": "4", "threshold": "5"}
        assert await n.events() == [("balance.low", shown)]
        await spend(n, key, UNIT)
        await n.sweep()
        assert len(await n.events()) == 1
        await n.world.accounts.credit("acme", UNIT)  # still low: no other event
        await n.sweep()
        await n.world.accounts.credit("acme", 10 * UNIT)
        await n.sweep()
        await spend(n, key, 12 * UNIT)
        await n.sweep()
        assert await n.types() == ["balance.low", "balance.low"]
        assert len({delivery.event.id for delivery in await n.deliveries()}) == 2


async def test_threshold_of_an_account_replaces_the_one_of_the_configuration(notifying) -> None:
    async with notifying() as n:
        for name in ("rich", "poor", "quiet"):
            await n.world.accounts.create(name, balance=4 * UNIT)
        await n.world.store.client.hset("{a:rich}", "low", 3 * UNIT)
        await n.world.store.client.hset("{a:quiet}", "low", 0)
        await n.sweep()
        assert [data["account"] for _, data in await n.events()] == ["poor"]


async def test_balance_above_the_credit_line_is_what_counts(notifying) -> None:
    async with notifying() as n:
        await n.world.accounts.create("acme", balance=UNIT)
        await AccountLimits(n.world.store, n.world.accounts).change("acme", floor=-10 * UNIT)
        await n.sweep()
        assert await n.events() == []


@pytest.mark.holds("notifications.md#events-5")
async def test_refused_call_is_an_exhausted_balance_until_a_top_up(notifying) -> None:
    async with notifying(events=["balance.exhausted"]) as n:
        await n.world.accounts.create("acme", balance=UNIT)
        await n.sweep()
        assert await n.types() == []
        await n.refuse("acme")
        await n.sweep()
        await n.refuse("acme")
        assert await n.events() == [("balance.exhausted", {"account": "acme", "balance": "1", "available": "1"})]
        await n.world.accounts.credit("acme", 1)
        await n.sweep()
        await n.refuse("acme")
        assert await n.types() == ["balance.exhausted"] * 2


async def test_empty_account_is_an_exhausted_balance(notifying) -> None:
    async with notifying() as n:
        await n.world.accounts.create("acme", balance=0)
        await n.sweep()
        assert await n.types() == ["balance.exhausted", "balance.low"]


async def test_budgets_of_a_key_and_of_a_month_are_told_at_80_and_100_percent(notifying) -> None:
    async with notifying(events=["budget.80", "budget.100"]) as n:
        key = await n.world.caller(balance=100 * UNIT, budget=10 * UNIT, name="ci", every="day")
        await AccountLimits(n.world.store, n.world.accounts).change("acme", monthly=20 * UNIT)
        await spend(n, key, 8 * UNIT)
        await n.sweep()
        [(type_, data)] = await n.events()
        assert (type_, data["key"], data["name"], data["budget"], data["spent"]) == (
            "budget.80", key.id, "ci", "10", "8",
        )  # fmt: skip
        assert data["period"].startswith("d")
        await spend(n, key, 2 * UNIT)
        await n.sweep()
        assert await n.types() == ["budget.100", "budget.80"]
        other = await n.world.caller()
        await spend(n, other, 10 * UNIT)
        await n.sweep()
        months = [(type_, data) for type_, data in await n.events() if data["key"] is None]
        assert sorted(type_ for type_, _ in months) == ["budget.100", "budget.80"]
        assert months[0][1]["period"] == f"{datetime.now(UTC):%Y-%m}"
        await n.sweep()
        assert len(await n.events()) == 4


@pytest.mark.holds("notifications.md#events-6")
async def test_next_period_arms_a_budget_again(notifying) -> None:
    async with notifying(events=["budget.100"]) as n:
        key = await n.world.caller(balance=100 * UNIT, budget=10 * UNIT, every="day")
        await spend(n, key, 10 * UNIT)
        await n.sweep()
        name = f"{{a:acme}}:k:{key.id}"
        await n.world.store.client.hset(name, "period", "d1")  # as if that was long ago
        await n.sweep()
        await n.world.store.client.hdel(name, "base")
        await n.world.store.client.hset(
            name, "period", f"d{(datetime.now(UTC) - datetime(1970, 1, 1, tzinfo=UTC)).days}"
        )
        await n.sweep()
        assert await n.types() == ["budget.100"] * 2


@pytest.mark.holds("notifications.md#events-6")
async def test_expiring_key_is_an_event_7_days_and_1_day_before(notifying) -> None:
    async with notifying() as n:
        await n.world.accounts.create("acme", balance=100 * UNIT)
        now = datetime.now(UTC)
        key = await n.world.keys.create("acme", name="ci", expires=now + timedelta(days=30))
        short = await n.world.keys.create("acme", expires=now + timedelta(hours=3))
        client, name = n.world.store.client, f"{{a:acme}}:k:{key.id}"
        await n.sweep()
        assert await n.events() == []
        for days in (6, 6, 0.9, 0.8):
            expires = int((now + timedelta(days=days)).timestamp())
            await client.hset(name, mapping={"exp": expires, "created": 0})
            await n.sweep()
        # An expiry that was changed is another one: 6 days, and two different ones of less than a day.
        assert [(data["key"], data["days"]) for _, data in await n.events()] == [(key.id, 7), (key.id, 1), (key.id, 1)]
        await n.world.keys.revoke(key.id)
        await n.sweep()
        assert len(await n.events()) == 3
        assert short.id not in str(await n.events())


@pytest.mark.parametrize(
    ("left", "life", "level"),
    [
        (8 * DAY, 30 * DAY, 0),
        (7 * DAY, 30 * DAY, 1),
        (DAY, 30 * DAY, 2),
        (0, 30 * DAY, 0),
        (DAY, 2 * DAY, 2),
        (9, 99, 0),
    ],
)
def test_key_that_lives_shorter_than_a_notice_gets_none(left: int, life: int, level: int) -> None:
    now = 2_000_000_000
    fields = {"state": "active", "exp": str(now + left), "created": str(now + left - life)}
    [condition] = key_conditions("acme", KeyFacts("key_1", fields), now=now)
    assert condition.level == level


@pytest.mark.holds("notifications.md#events-4")
async def test_crossing_is_one_event_for_several_machines(notifying) -> None:
    async with notifying() as n:
        for name in ("a", "b", "c"):
            await n.world.accounts.create(name, balance=UNIT)
        watches = [AccountWatch(n.world.store, n.notifier, n.settings.notify) for _ in range(4)]
        for watch in watches:
            watch.touch(["a", "b", "c"])
        await asyncio.gather(*(watch.step() for watch in watches))
        assert await n.types() == ["balance.low"] * 3


async def test_one_machine_sweeps_at_a_time_and_all_accounts_are_seen(notifying, monkeypatch) -> None:
    monkeypatch.setattr(account_watch, "PAGE", 10)
    async with notifying() as n:
        for number in range(120):
            await n.world.accounts.create(f"a{number}", balance=UNIT)
        other = AccountWatch(n.world.store, n.notifier, n.settings.notify)
        await n.sweep()
        await other.step()
        assert not other._is_sweeping
        assert len(await n.events()) == 120


async def test_account_with_many_keys_is_read_by_the_sweep_alone(notifying, monkeypatch) -> None:
    monkeypatch.setattr(account_watch, "MOST_KEYS", 1)
    async with notifying(events=["budget.100"]) as n:
        key = await n.world.caller(budget=UNIT)
        await n.world.caller(budget=UNIT)
        await n.sweep()
        await spend(n, key, UNIT)
        n.accounts.touch(["acme"])
        await n.accounts.step()
        assert await n.events() == []
        await n.sweep()
        assert await n.types() == ["budget.100"]


async def test_damaged_account_does_not_hide_the_others(notifying) -> None:
    async with notifying() as n:
        for name in ("a", "b", "c", "d", "e"):
            await n.world.caller(name, balance=UNIT, budget=UNIT)
        client = n.world.store.client
        await client.hset("{a:a}", "bal", "much")
        await client.set("{a:b}:ks", "no set")
        [key] = await client.smembers("{a:c}:ks")
        await client.hset(b"{a:c}:k:" + key, "every", "aeon")
        await client.delete("{a:d}")
        await client.set("{a:d}", "no hash")
        await n.sweep()
        assert sorted(data["account"] for _, data in await n.events()) == ["b", "c", "e"]


async def test_kinds_that_are_not_wanted_are_no_events(notifying) -> None:
    async with notifying(events=["circuit.opened"]) as n:
        await n.world.accounts.create("acme", balance=0)
        await n.sweep()
        assert await n.deliveries() == []


async def test_each_channel_gets_its_own_kinds(notifying) -> None:
    settings = {"events": ["balance.low"], "mail_to": ["ops@example.com"], "mail_events": ["balance.exhausted"]}
    async with notifying(**settings, owners=True) as n:
        await n.world.accounts.create("acme", balance=0)
        await n.sweep()
        found = sorted((delivery.event.type, delivery.channel) for delivery in await n.deliveries())
        assert found == [
            ("balance.exhausted", "mail:ops@example.com"),
            ("balance.low", "owners"),
            ("balance.low", "webhook"),
        ]
