"""Workers are killed and restarted under load: what that costs their callers, and what it does to the ledger.

`tox -e chaos`, or `python -m pytest -s tests/chaos/chaos_workers.py`; each test prints the figure it reached.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time

import pytest

from gateway.testing import FakeUpstream
from tests.chaos.conftest import Front
from tests.chaos.traffic import Traffic, paced, percentile, traffic_on
from tests.chaos.truth import all_is_well, charged, nothing_held, off
from tests.polling import until
from tests.processes.served import Served, descriptors

STREAMS = 500
KILLS = 100
KILL_FOR = 400.0  # seconds
INTERVAL = 0.5  # seconds between chunks
CHUNKS = 30
RELEASED_WITHIN = 5.0
# What the upstream wrote and a killed worker had not read yet was delivered to nobody, and is charged to nobody. That
# is a chunk, and one more where a loaded machine lets a worker be late by an interval.
UNREAD = 2
ROLL_FOR = 60.0


async def both_serve(gateway: Served) -> bool:
    await asyncio.sleep(0.05)
    return (await gateway.metrics()).get("gateway_workers") == 2


class Watch:
    """Looks which holds outlive their calls; the seconds by which the slowest did, as far as a look can tell."""

    def __init__(self, gateway: Served, traffic: Traffic) -> None:
        self._gateway = gateway
        self._traffic = traffic
        self._nameless: dict[str, float] = {}  # since when; a call whose worker died before its client heard of it
        self.longest = 0.0

    async def look(self) -> None:
        """Until cancelled."""
        async with self._gateway.session() as session:
            while True:
                held = [request_id.decode() for request_id in await session.store.client.hkeys("{a:test}:rv")]
                now = time.monotonic()
                named = {call.request_id: call for call in self._traffic.calls if call.request_id}
                alive = [
                    named[request_id].ended or now if request_id in named else self._nameless.get(request_id, now)
                    for request_id in held
                ]
                self._nameless = {
                    request_id: since for request_id, since in zip(held, alive, strict=True) if request_id not in named
                }
                self.longest = max(self.longest, *(now - since for since in alive), 0.0)
                await asyncio.sleep(0.1)


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-8")
@pytest.mark.gen_test(timeout=600)
async def test_random_workers_killed_under_streams_lose_no_hold_and_no_chunk(
    front: Front, upstream: FakeUpstream, share: float
) -> None:
    paced(upstream, INTERVAL)
    gateway = await front(workers=2)
    async with traffic_on(gateway) as traffic:
        traffic.keep(STREAMS, CHUNKS)
        await until(lambda: traffic.running >= STREAMS * 0.8, within=60.0)
        watch = Watch(gateway, traffic)
        looking = asyncio.create_task(watch.look())
        started, kills = time.monotonic(), 0
        while kills < KILLS * share and time.monotonic() < started + KILL_FOR * share:
            await until(lambda: both_serve(gateway), within=30.0)
            await asyncio.sleep(random.uniform(0.0, 1.0))
            os.kill(random.choice(gateway.workers), signal.SIGKILL)
            kills += 1
        took = time.monotonic() - started
        await traffic.ended()
        await nothing_held(gateway, within=RELEASED_WITHIN)
        looking.cancel()
        await asyncio.wait([looking])
        away = await off(gateway, upstream, traffic.calls)
        ledger = await charged(gateway)
    cut = {call.name: call for call in traffic.calls if call.status == 200 and not call.whole}
    refused = [call for call in traffic.calls if call.status not in (0, 200)]
    whole = [chunks for name, chunks in away.items() if name not in cut]
    unread = [-chunks for name, chunks in away.items() if name in cut]
    unseen = [ledger.get(call.request_id, 0) - call.chunks for call in cut.values()]
    print(
        f"\nkill -9 of a random worker {kills} times in {took:.0f} s under {STREAMS} streams: {len(traffic.calls)} "
        f"streams, {len(cut)} cut, {len(refused)} refused; whole ones off by {sum(map(abs, whole))} chunks; cut ones "
        f"charged {min(unseen)} to {max(unseen)} chunks more than their clients got ({sum(map(bool, unseen))} of them "
        f"not exactly), and {min(unread)} to {max(unread)} fewer than the upstream wrote (p50 "
        f"{percentile([float(chunks) for chunks in unread], 0.5):.0f}, p99 "
        f"{percentile([float(chunks) for chunks in unread], 0.99):.0f}); no hold outlived its call by more than "
        f"{watch.longest:.1f} s"
    )
    assert kills
    assert not [chunks for chunks in whole if chunks]
    assert min(unseen) >= 0
    assert max(unseen) <= 1
    assert min(unread) >= -1
    assert max(unread) <= UNREAD
    assert watch.longest <= RELEASED_WITHIN
    assert not refused
    await all_is_well(gateway, workers=2, processes=3)


@pytest.mark.gen_test(timeout=120)
async def test_holds_of_dead_workers_are_released_even_if_every_worker_dies_early(
    front: Front, upstream: FakeUpstream
) -> None:
    paced(upstream, INTERVAL)
    gateway = await front(workers=1)
    async with traffic_on(gateway) as traffic:
        streams = [asyncio.create_task(traffic.make(60)) for _ in range(20)]
        await until(lambda: traffic.running == len(streams), within=20.0)
        died, kills = time.monotonic(), 0
        while (await gateway.account()).held and time.monotonic() < died + RELEASED_WITHIN + 10.0:
            for worker in gateway.workers:
                os.kill(worker, signal.SIGKILL)
                kills += 1
            await asyncio.sleep(0.2)
        released = time.monotonic() - died
        await asyncio.gather(*streams)
    print(f"\n{kills} deaths in a row and no call in between: holds gone {released:.1f} s after the first")
    assert released <= RELEASED_WITHIN
    await until(lambda: gateway.workers, within=20.0)


@pytest.mark.gen_test(timeout=240)
async def test_workers_restarted_one_after_the_other_under_load_fail_no_new_request(
    front: Front, upstream: FakeUpstream, share: float
) -> None:
    paced(upstream, 0.02)
    gateway = await front(workers=2, drain_timeout=20.0)
    restarts = 0
    async with traffic_on(gateway) as fresh, traffic_on(gateway, keep_alive=True) as kept:
        fresh.keep(12, 5)
        fresh.keep(12, 3, stream=False)
        kept.keep(6, 3, stream=False, pause=0.01)
        files = descriptors(gateway.pid)
        started = time.monotonic()
        while time.monotonic() < started + ROLL_FOR * share:
            old = gateway.workers[restarts % 2]
            os.kill(old, signal.SIGTERM)
            restarts += 1
            await until(lambda old=old: old not in gateway.workers, within=30.0)
            await until(lambda: both_serve(gateway), within=30.0)
        await asyncio.gather(fresh.ended(), kept.ended())
        calls = fresh.calls + kept.calls
        failed = [call for call in fresh.calls if not call.answered_well]
        raced = [call for call in kept.calls if not call.answered_well]
        print(
            f"\nrolling restart, {restarts} workers in {time.monotonic() - started:.0f} s: {len(fresh.calls)} calls on "
            f"new connections, {len(failed)} failed; {len(kept.calls)} on kept ones, {len(raced)} failed; slowest "
            f"status {max(call.waited for call in calls):.2f} s"
        )
        assert not failed, failed[:5]
        assert not raced, raced[:5]
        await nothing_held(gateway, within=5.0)
        assert set((await off(gateway, upstream, calls)).values()) == {0}
    assert restarts >= 2
    assert descriptors(gateway.pid) <= files + 2
    await all_is_well(gateway, workers=2, processes=3)
