"""Half an hour of mixed load while the store fails and the configuration changes: nothing grows, every unit is billed.

`tox -e soak`; SOAK_MINUTES shortens it, and below LONG minutes the slope of memory is printed but not judged, because a
short run sees little but the allocator settling.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator

import aiohttp
import pytest
from tornado.ioloop import IOLoop

from gateway.testing import FakeUpstream
from tests.chaos.truth import all_is_well, charged, nothing_held
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import Served, descriptors, is_alive
from tests.soak.drift import Sample, Slope, look, slope
from tests.soak.mixture import MODELS, Mixture, Truth

MINUTES = float(os.environ.get("SOAK_MINUTES", "30"))
LONG = 20.0  # minutes
WARM = min(300.0, MINUTES * 60 * 0.2)  # seconds
CALLERS = {"chat": 12, "embeddings": 2, "images": 2, "speech": 2, "transcriptions": 2}
MOST_GROWTH = 2**20 / 3600  # bytes per second: 1 MiB per hour
LOOK_EVERY = 2.0
STOP_EVERY, STOPPED_FOR = 20.0, 1.0
KILL_EVERY = max(45.0, MINUTES * 60 / 8)
RELOAD_EVERY = 30.0
MOST_DESCRIPTORS = 8  # that a worker may have more at the end than when it was warm: connections that happen to be idle
LEASE = 70.0  # seconds in which a hold ends whose admission was lost on the way
OFF = 2  # chunks: the upstream wrote them to a connection that its reader had just given up
SELDOM = 0.001  # of those who left, with more such chunks: on a loaded machine the reader comes late now and then


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Where the models live."""
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


class Trouble:
    """What happens to the store and the configuration, and how often it did."""

    def __init__(self, gateway: Served, url: str) -> None:
        self.done: Counter[str] = Counter()
        self._gateway = gateway
        self._url = url
        self._tasks = [
            asyncio.create_task(self._every(seconds, what))
            for seconds, what in ((STOP_EVERY, self._stop), (KILL_EVERY, self._kill), (RELOAD_EVERY, self._reload))
        ]

    async def end(self) -> None:
        """No more of it, and the store is back."""
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        for task in self._tasks:
            assert task.cancelled(), task.exception()
        os.kill(await self._store(), signal.SIGCONT)
        await until(self._ready, within=20.0)

    async def _every(self, seconds: float, what: Callable[[], Awaitable[None]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await what()

    async def _store(self) -> int:
        """The store's process, once there is one."""

        def living() -> int:
            try:
                return self._gateway.store_pid
            except StopIteration:
                return 0

        return await until(living, within=20.0)

    async def _ready(self) -> bool:
        return await self._gateway.readiness() == 200

    async def _stop(self) -> None:
        pid = await self._store()
        os.kill(pid, signal.SIGSTOP)
        await asyncio.sleep(STOPPED_FOR)
        if is_alive(pid):
            os.kill(pid, signal.SIGCONT)
        self.done["store stopped"] += 1

    async def _kill(self) -> None:
        os.kill(await self._store(), signal.SIGKILL)
        self.done["store killed"] += 1

    async def _reload(self) -> None:
        self.done["reloaded"] += 1
        self._gateway.configure(MODELS.format(url=self._url, rpm=1_000_000 + self.done["reloaded"]))
        os.kill(self._gateway.pid, signal.SIGHUP)


async def watch(gateway: Served, truth: Truth, seconds: float) -> dict[int, list[Sample]]:
    """Every worker, every few seconds."""
    samples: dict[int, list[Sample]] = {pid: [] for pid in gateway.workers}
    began = time.monotonic()
    while (since := time.monotonic() - began) < seconds:
        for pid, taken in samples.items():
            assert is_alive(pid), f"worker {pid} died:\n{gateway.text[-2000:]}"
            taken.append(look(pid, since))
        truth.fold()
        await asyncio.sleep(LOOK_EVERY)
    return samples


def memory(samples: list[Sample]) -> Slope:
    return slope([one.seconds for one in samples], [float(one.rss) for one in samples])


def more_descriptors(samples: list[Sample]) -> int:
    """How many more there are in the last quarter than in the first, by the middle one of each."""
    counts = [one.descriptors for one in samples]
    quarter = max(1, len(counts) // 4)
    first, last = sorted(counts[:quarter]), sorted(counts[-quarter:])
    return last[len(last) // 2] - first[len(first) // 2]


async def wrongly_billed(gateway: Served, truth: Truth, mixture: Mixture) -> dict[str, tuple[int, int]]:
    """By request id, what was charged and what was delivered, where they differ."""
    ledger = await charged(gateway)
    wrong, late = {}, 0
    for call in mixture.calls:
        if call.request_id:
            units, paid = truth.units(call), ledger.pop(call.request_id, 0)
            least = call.got if call.left else units  # how much of a sound was delivered, nobody can say
            late += call.left and call.kind == "chat" and paid < units - OFF
            if not least <= paid <= units:
                wrong[f"{call.request_id} {call.kind} {call.status}{' left' * call.left}"] = (paid, units)
    assert late <= max(1, SELDOM * sum(call.left for call in mixture.calls)), late
    return wrong | {f"{request_id}, nobody's call": (paid, 0) for request_id, paid in ledger.items() if paid}


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-8")
@pytest.mark.gen_test(timeout=MINUTES * 60 + 300)
async def test_memory_does_not_grow_and_every_unit_is_billed_under_mixed_load(
    yard: Yard, upstream: FakeUpstream
) -> None:
    truth = Truth(upstream)
    gateway = await yard.serve(MODELS.format(url=upstream.base_url, rpm=1_000_000), workers=2)
    at_first = [descriptors(pid) for pid in gateway.workers]
    connector = aiohttp.TCPConnector(limit=0, force_close=True)  # so that the kernel spreads calls over the workers
    async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60.0)) as session:
        mixture = Mixture(gateway, session)
        mixture.begin(CALLERS)
        trouble = Trouble(gateway, upstream.base_url)
        samples = await watch(gateway, truth, MINUTES * 60)
        await trouble.end()
        await mixture.ended()
    await until(lambda: all(seen.outcome != "open" for seen in upstream.seen), within=20.0)
    truth.fold()
    released = await nothing_held(gateway, within=LEASE)
    wrong = await wrongly_billed(gateway, truth, mixture)
    warm = {pid: [one for one in taken if one.seconds >= WARM] for pid, taken in samples.items()}
    statuses = Counter(f"{call.kind} {call.status}" for call in mixture.calls)
    print(f"\n{len(mixture.calls)} calls in {MINUTES:g} min: {dict(sorted(statuses.items()))}")
    print(f"{sum(call.left for call in mixture.calls)} callers left, upstream failures {dict(truth.failures)}")
    print(f"{dict(trouble.done)}; last hold gone after {released:.1f} s; {len(wrong)} wrongly billed")
    for pid, taken in warm.items():
        sizes = [one.rss / 2**20 for one in taken]
        print(
            f"worker {pid}: {memory(taken).mib_per_hour} over {len(taken)} samples, {min(sizes):.1f}–{max(sizes):.1f} "
            f"MiB, {more_descriptors(taken):+d} descriptors ({descriptors(pid)} now, {at_first} at first)"
        )
    assert not mixture.faults, mixture.faults
    assert not wrong, list(wrong.items())[:10]
    assert all(more_descriptors(taken) <= MOST_DESCRIPTORS for taken in warm.values())
    if MINUTES >= LONG:
        assert all(memory(taken).value < MOST_GROWTH for taken in warm.values())
    await all_is_well(gateway, workers=2, processes=3)
