"""The store is away for half a minute, in three ways: callers hear of it at once, streams finish, all is billed after.

`tox -e chaos`, or `python -m pytest -s tests/chaos/chaos_store.py`; each test prints the figure it reached.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.accounts.accounts import Accounts
from gateway.accounts.keys import Keys
from gateway.accounts.pepper import load_pepper
from gateway.amounts import NANO
from gateway.ledger import Ledger
from gateway.store import EmbeddedServer, Store
from gateway.testing import FakeUpstream
from tests.chaos.proxy import ChaosProxy
from tests.chaos.traffic import MODELS, Call, Traffic, paced, percentile, traffic_on
from tests.chaos.truth import all_is_well, charged, nothing_held, off, written
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served, descriptors

AWAY = 30.0  # seconds
STREAMS = 60
INTERVAL = 0.5
REFUSED_AT_FIRST = 1.3  # seconds: `store.timeout` and a little
KNOWN_AFTER = 1.3  # seconds until a store that is away is known to be away
REFUSED_WITHIN = 0.1  # seconds from then on: 50 ms and what the test's own processes take
SERVED_WITHIN = 2.0
BILLED_WITHIN = 5.0
LEASE = 70.0  # seconds in which a hold ends whose admission was lost on the way


class Away:
    """A store of the operator's own, which a test takes away and brings back."""

    def __init__(self, folder: Path, proxy: ChaosProxy | None) -> None:
        self.folder = folder
        self.server = EmbeddedServer(folder)
        self.proxy = proxy

    async def stopped(self, seconds: float) -> None:
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    async def killed(self, seconds: float) -> None:
        socket, pid = self.server.socket, self.server.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(seconds)
        await self.server.stop()
        self.server = EmbeddedServer(self.folder)
        await self.server.start()
        assert self.server.socket == socket

    async def holed(self, seconds: float) -> None:
        assert self.proxy is not None
        self.proxy.black_hole = True
        await asyncio.sleep(seconds)
        self.proxy.black_hole = False

    async def deaf(self, seconds: float) -> None:
        """What was asked is done, and nobody hears of it."""
        assert self.proxy is not None
        self.proxy.lose_replies = True
        await asyncio.sleep(seconds)
        self.proxy.lose_replies = False


@asynccontextmanager
async def own_store(folder: Path, *, proxied: bool) -> AsyncIterator[tuple[Away, str]]:
    """A store outside the gateway, and its URL."""
    away = Away(folder, None)
    await away.server.start()
    try:
        if not proxied:
            yield away, f"unix://{away.server.socket}"
            return
        async with ChaosProxy(away.server.socket) as proxy:
            away.proxy = proxy
            yield away, f"redis://127.0.0.1:{proxy.port}/0"
    finally:
        await away.server.stop()


async def create_key(gateway: Served, where: Path) -> None:
    store = await Store.open(where, timeout=5.0)
    try:
        await Accounts(store, Ledger(store, {})).create("test", balance=1000 * NANO)
        gateway.api_key = (await Keys(store, load_pepper(gateway.data_dir)).create("test")).text
    finally:
        await store.close()


async def ask_steadily(traffic: Traffic, until_then: asyncio.Event) -> list[Call]:
    """Ten new requests a second, whatever becomes of them."""
    tasks = []
    while not until_then.is_set():
        tasks.append(asyncio.create_task(traffic.make(2, stream=False)))
        await asyncio.sleep(0.1)
    return list(await asyncio.gather(*tasks))


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-2")
@pytest.mark.gen_test(timeout=300)
@pytest.mark.parametrize("way", ["stopped", "killed", "holed", "deaf"])
async def test_calls_without_a_store_are_refused_quickly_and_nothing_stays_unbilled(
    way: str, yard: Yard, upstream: FakeUpstream, share: float
) -> None:
    paced(upstream, INTERVAL)
    away_for = max(3.0, AWAY * share)
    async with own_store(yard.folder / "elsewhere", proxied=way in ("holed", "deaf")) as (store, url):
        gateway = yard.make(MODELS.format(url=upstream.base_url), workers=2, store=url)
        await gateway.started(workers=2)
        await create_key(gateway, store.server.socket)
        async with traffic_on(gateway) as traffic:
            assert (await traffic.make(2)).answered_well
            files = [descriptors(pid) for pid in gateway.workers]
            # Half of them end while the store is away, half of them when it is back.
            lengths = [int(away_for / INTERVAL * 0.5), int((away_for + 3.0) / INTERVAL)]
            streams = [asyncio.create_task(traffic.make(lengths[n % 2])) for n in range(STREAMS)]
            await until(lambda: traffic.running >= STREAMS, within=20.0)
            over = asyncio.Event()
            asking = asyncio.create_task(ask_steadily(traffic, over))
            await asyncio.sleep(0.5)
            gone = time.monotonic()
            await getattr(store, way)(away_for)
            back = time.monotonic()
            await until(lambda: any(c.status == 200 and c.answered > back for c in traffic.calls), within=10.0)
            served = next(c.answered for c in traffic.calls if c.status == 200 and c.answered > back) - back
            await asyncio.sleep(max(0.0, back + SERVED_WITHIN + 0.5 - time.monotonic()))
            over.set()
            asked = await asking
            ended = {id(call): call for call in await asyncio.gather(*streams)}
            await asyncio.sleep(max(0.0, back + BILLED_WITHIN - time.monotonic()))
            unbilled = {n: c for n, c in (await off(gateway, upstream, traffic.calls)).items() if c}
            account = await gateway.account()
            during = [call for call in asked if gone <= call.started < back - 0.5]
            refused = [call for call in during if call.status == 503]
            later = [call for call in asked if call.started > back + SERVED_WITHIN]
            waits = [call.ended - call.started for call in refused]
            known = [call.ended - call.started for call in refused if call.started > gone + KNOWN_AFTER]
            print(
                f"\nstore {way} for {away_for:.0f} s: {sum(c.answered_well for c in ended.values())} of {STREAMS} "
                f"streams whole; new requests {dict(Counter(call.status for call in during))}, refused p50 "
                f"{percentile(waits, 0.5) * 1000:.0f} ms, slowest {max(waits) * 1000:.0f} ms, p90 once it was known "
                f"{percentile(known, 0.9) * 1000:.0f} ms; served {served:.2f} s after its return; "
                f"{len(unbilled)} unbilled {BILLED_WITHIN:.0f} s after it, {account.held} nano still held"
            )
            assert all(call.answered_well for call in ended.values()), [
                c for c in ended.values() if not c.answered_well
            ]
            assert len(refused) == len(during), [call for call in during if call.status != 503][:5]
            assert all(call.answered_well for call in later), [call for call in later if not call.answered_well][:5]
            assert not unbilled
            assert served < SERVED_WITHIN
            assert max(waits) <= 2 * REFUSED_AT_FIRST
            assert percentile(waits, 0.99) <= REFUSED_AT_FIRST
            assert percentile(known, 0.9) <= REFUSED_WITHIN
            ledger, truth = await charged(gateway), written(upstream)
            assert sum(ledger.values()) == sum(truth.values())
        # What was admitted in the moment of the loss, unheard, holds money until its lease ends.
        released = await nothing_held(gateway, within=LEASE)
        print(f"all holds gone {time.monotonic() - back:.1f} s after its return ({released:.1f} s waited)")
        await all_is_well(gateway, workers=2, processes=2)
        assert (
            max(descriptors(pid) for pid in gateway.workers) <= max(files) + STREAMS + 10
        )  # idle ones to the upstream
        gateway.process.send_signal(signal.SIGTERM)
        assert await gateway.ended() == 0
