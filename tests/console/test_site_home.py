"""The home page of viewers and operators: calls, times, failures, money, capacity and alerts of the whole site."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from gateway.admin.machine_state import MachineState, ProcessState, Resource
from gateway.admin.machines import Machine, announce
from gateway.history.refusals import add_batches
from gateway.ledger.refusal_counts import HOUR, RefusalBatch
from gateway.routing.circuit_sync import HASH, CircuitEvent
from gateway.web.recent_answers import RecentAnswers
from tests.admin_api.both_databases import database_address, database_url
from tests.console.client import Console
from tests.console.conftest import OpenConsole
from tests.console.history import ago, history

__all__ = ["database_address", "database_url"]
STATE = MachineState(
    reports=True,
    workers=2,
    workers_wanted=2,
    in_flight=7,
    upstream_calls={"fake": 5},
    processes=(
        ProcessState("worker-0", cpu=0.25, resident=3 << 20, descriptors=40, descriptors_limit=1024, lag=0.012),
    ),
    resources=(Resource("connections_v1", 30.0, 120.0), Resource("store_bytes", 5.0 * (1 << 20))),
)


async def site(c: Console) -> None:
    """Calls of two accounts, a refund, a credit, a debit, refused requests, and a machine."""
    for name in ("acme", "other"):
        account = await history(c, name)
        account.line(ago(minutes=3), "topup", 50_000_000_000)
        account.line(ago(minutes=3), "topup", -1_000_000_000)
        for number in range(4):
            account.call(
                ago(minutes=2),
                2_000_000_000,
                provider="fake",
                model="fake-chat",
                outcome="upstream_timeout" if number == 3 else "ok",
                first_token_ms=0 if number == 3 else 120,
                upstream_cost=500_000_000,
                uncollected=1_000_000 if number == 0 else 0,
            )
        account.flush()
    hour = int(time.time()) // HOUR
    counts = [(hour, "acme", "k", "m", "rate_limit_exceeded", 3), (hour, "other", "k", "m", "insufficient_quota", 2)]
    database = await c.services.database()
    await c.services.sql.run(add_batches, database, [RefusalBatch("b1", counts)])
    await announce(c.services.store.store, Machine("1", "one:8080", "aaa", "1.0", state=STATE))
    c.services.recent = RecentAnswers(0.0)


async def test_operators_and_viewers_begin_at_the_site_and_others_at_their_account(console: OpenConsole) -> None:
    async with console() as c:
        operator = await c.as_("root", role="operator", acme="owner")
        viewer = await c.as_("eva", role="viewer")
        owner = await c.as_("ann", acme="owner")
        nobody = await c.as_("bob")
        begins = [(await browser.ask("GET", "/")).location for browser in (operator, viewer, owner, nobody)]
        assert begins == ["/site", "/site", "/accounts/acme", "/profile"]
        assert (await owner.ask("GET", "/site")).status == 403


@pytest.mark.holds("console.md#home-1")
@pytest.mark.parametrize("name", ["1h", "24h", "7d"])
async def test_home_has_the_figures_of_all_accounts_in_the_chosen_range(console: OpenConsole, name: str) -> None:
    async with console() as c:
        await site(c)
        await c.services.attention.refresh()
        shown = (await (await c.as_("eva", role="viewer")).get(f"/site?range={name}")).text
        for text in (
            "Calls 8 7 in progress",
            "First token 1",  # 120 ms, within its cell of the histogram
            "Failed 25 % 2 calls, 5 refused",
            "Charged 16.00 USD 0.002 not collected",
            "Margin 12.00 USD cost 4.00, known for 100 %",
            "Credits 100.00 USD 2.00 debited",
            "upstream_timeout failed 2",
            "rate_limit_exceeded refused 3",
            "insufficient_quota refused 2",
            "fake in use 5 8 25 %",
            "Connections of clients 30 120 25 %",
            "Memory of the store 5 MiB none",
            "worker-0 0.25 3 MiB 40 of 1,024 12 ms",
            "Every target is called.",
        ):
            assert text in shown, (text, shown)


async def test_calls_before_the_range_are_not_counted_and_an_unknown_range_is_the_default(console: OpenConsole) -> None:
    async with console() as c:
        account = await history(c)
        account.call(ago(hours=30), 1_000_000, provider="fake")
        account.call(ago(days=8), 1_000_000, provider="fake")
        account.flush()
        c.services.recent = RecentAnswers(0.0)
        viewer = await c.as_("eva", role="viewer")
        figures = {name: (await viewer.get(f"/site?range={name}")).text for name in ("1h", "24h", "7d", "nonsense")}
        assert ["Calls 1 " in text for text in figures.values()] == [False, False, True, False]
        assert 'aria-current="true">24 hours' in (await viewer.get("/site?range=nonsense")).html


async def test_chart_has_a_row_for_each_period_with_calls_failures_and_times(console: OpenConsole) -> None:
    async with console() as c:
        await site(c)
        viewer = await c.as_("eva", role="viewer")
        html = (await viewer.get("/site?range=24h")).html
        rows = re.findall(r"<td data-at=\"(\d+)\">.*?</td><td>(\d+)</td><td>(\d+)</td><td>(\S+?)</td>", html)
        now = datetime.now(UTC).timestamp()
        assert len(rows) in (24, 25, 26) and all(int(at) % 3600 == 0 and int(at) <= now for at, *_ in rows)
        assert sum(int(served) for _, served, _, _ in rows) == 6
        assert sum(int(failed) for *_, failed, _ in rows) == 2
        assert {first for *_, first in rows} > {"–"}
        days = re.findall(r"data-at=", (await viewer.get("/site?range=7d")).html)
        assert len(days) in (7, 8, 9)


async def test_what_is_not_called_is_shown_with_its_cause_and_a_link_to_its_provider(console: OpenConsole) -> None:
    async with console() as c:
        events = [
            CircuitEvent("w", "fake", 0, cause="credential", seconds=60.0, at=time.time()),
            CircuitEvent("w", "fake", 0, "tiny", "failures", 60.0, time.time()),
            CircuitEvent("w", "gone", 0, "x", "failures", 60.0, time.time()),
        ]
        link = c.services.store.store.link(HASH)
        for event in events:
            await link.call("HSET", HASH, event.field, msgspec.json.encode(event))
        await c.services.attention.refresh()
        shown = await (await c.as_("eva", role="viewer")).get("/site")
        assert "fake , credential 1 it refused the credential" in shown.text
        assert "tiny it keeps failing until" in shown.text and "gone" not in shown.text
        assert 'href="/site/providers/fake"' in shown.html and "fake 2 not called" in shown.text


async def test_home_of_a_new_gateway_says_what_to_do_next(console: OpenConsole) -> None:
    async with console() as c:
        shown = (await (await c.as_("eva", role="viewer")).get("/site")).text
        assert "No call in this range." in shown and "No gateway has reported yet." in shown


async def test_pages_read_nothing_for_the_banner(console: OpenConsole, monkeypatch: Any) -> None:
    async with console() as c:
        await announce(
            c.services.store.store, Machine("1", "one", "a", "1.0", state=MachineState(refused_settlements=1))
        )
        await c.services.attention.refresh()
        operator = await c.as_("root", role="operator")

        async def never() -> None:
            raise AssertionError("a page looks at the gateway")

        monkeypatch.setattr(c.services.attention, "refresh", never)
        monkeypatch.setattr(c.services.machines, "refresh", never)
        assert "The store refused 1 settlement" in (await operator.get("/profile")).text
