"""The store dies, hangs, or is not there yet: refused quickly, nothing lost, served again as soon as it is back."""

import asyncio
import os
import signal
import time
from collections import Counter
from statistics import median

import pytest

from gateway.amounts import NANO
from gateway.store import EmbeddedServer
from tests.delays import store_is_paused_for
from tests.polling import at_once, until
from tests.processes.conftest import Serve, Yard
from tests.processes.served import Answer, Served, is_alive

REFUSED_AT_FIRST = 1.3 + 0.7  # seconds: `store.timeout` and a little; the rest is for a slow test machine
REFUSED_WITHIN = 0.05 + 0.2  # seconds, once the store is known to be away
PAUSES, PAUSE, BETWEEN = 3, 0.5, 1.0  # of a slow store; seconds
AT_ONCE = 8  # callers meanwhile


def is_polite_refusal(answer: Answer) -> bool:
    assert answer.status == 503, answer.body
    assert answer.body["error"]["type"] == "service_unavailable_error"
    assert int(answer.headers["Retry-After"]) >= 1
    return True


@pytest.mark.holds("README.md#operate-it-3", "operations/processes.md#what-happens-when-a-process-ends-2")
async def test_killed_store_is_restarted_and_nothing_is_lost(serve: Serve) -> None:
    gateway = await serve(workers=2)
    start = (await gateway.account()).balance
    streams = await gateway.flowing(6)
    store = gateway.store_pid
    answers: list[tuple[float, Answer]] = []
    running = True

    async def load() -> None:
        while running:
            answer = await gateway.chat()
            answers.append((time.monotonic(), answer))

    tasks = [asyncio.create_task(load()) for _ in range(4)]
    await until(lambda: len(answers) > 40)
    killed = time.monotonic()
    async with at_once(within=3.0):
        os.kill(store, signal.SIGKILL)
        await until(lambda: answers[-1][0] > killed + 0.1 and answers[-1][1].status == 200)
    back = answers[-1][0] - killed
    for stream in streams:
        assert (await stream.ended()).whole
    running = False
    await asyncio.gather(*tasks)

    counts = Counter(answer.status for _, answer in answers)
    refused = [answer for _, answer in answers if answer.status != 200]
    assert all(map(is_polite_refusal, refused))
    slowest = max((answer.seconds for answer in refused), default=0.0)
    print(f"store killed: back after {back:.2f} s, {dict(counts)}, slowest refusal {slowest * 1000:.0f} ms")
    assert median([answer.seconds for answer in refused] or [0.0]) < REFUSED_AT_FIRST
    assert not is_alive(store)
    assert (await gateway.metrics())["gateway_store_restarts_total"] == 1

    async def settled() -> bool:
        return len(await gateway.charges()) >= counts[200] + 6

    await until(settled)
    spent = start - (await gateway.account()).balance
    assert spent == sum(-line.amount for line in await gateway.charges())
    await gateway.proved()


@pytest.mark.holds(
    "operations/processes.md#what-happens-when-a-process-ends-3",
    "operations/redis.md#a-slow-store-3",
    "scaling.md#limits-2",
)
async def test_calls_to_a_hanging_store_wait_for_its_timeout_once_and_are_settled_when_it_continues(
    serve: Serve,
) -> None:
    gateway = await serve()
    assert (await gateway.chat()).status == 200
    stream = await gateway.stream("slow").flowing()
    store = gateway.store_pid
    os.kill(store, signal.SIGSTOP)
    try:
        async with at_once(within=REFUSED_AT_FIRST):
            first = await gateway.chat()
        later = []
        for _ in range(5):
            async with at_once(within=REFUSED_AT_FIRST / 2):
                later.append(await gateway.chat())

        async def unready() -> bool:
            return await gateway.readiness() == 503  # 0: no answer yet

        await until(unready)
        assert all(map(is_polite_refusal, [first, *later]))
        quickest = min(answer.seconds for answer in later)
        print(f"store hung: first refusal {first.seconds * 1000:.0f} ms, quickest later {quickest * 1000:.0f} ms")
        assert quickest < REFUSED_WITHIN
        assert (await stream.ended()).whole
        assert (await gateway.side("/healthz"))[0] == 200
        assert (await gateway.metrics())["gateway_workers"] == 1
    finally:
        os.kill(store, signal.SIGCONT)
    resumed = time.monotonic()
    async with at_once(within=2.0):
        await until(lambda: _served(gateway))
    print(f"store hung: served {time.monotonic() - resumed:.2f} s after it went on")
    await until(lambda: _ready(gateway))

    async def settled() -> bool:
        return len(await gateway.charges()) >= 3

    await until(settled)  # the stream's settlement waited in the journal
    await gateway.proved()


@pytest.mark.holds("operations/redis.md#a-slow-store-1")
async def test_store_that_pauses_for_half_a_second_delays_calls_and_refuses_none(serve: Serve) -> None:
    gateway = await serve(workers=2)
    assert (await gateway.chat()).status == 200
    store, answers, running = gateway.store_pid, list[Answer](), True

    async def load() -> None:
        while running:
            answers.append(await gateway.chat())

    tasks = [asyncio.create_task(load()) for _ in range(AT_ONCE)]
    for _ in range(PAUSES):
        os.kill(store, signal.SIGSTOP)
        await store_is_paused_for(PAUSE)
        os.kill(store, signal.SIGCONT)
        await store_is_paused_for(BETWEEN)
    running = False
    await asyncio.gather(*tasks)
    slowest = max(answer.seconds for answer in answers)
    print(f"store paused: {dict(Counter(answer.status for answer in answers))}, slowest {slowest * 1000:.0f} ms")
    assert {answer.status for answer in answers} == {200}
    assert slowest > PAUSE * 0.8  # a call that met a pause waited for its end

    async def settled() -> bool:
        return len(await gateway.charges()) == len(answers) + 1

    await until(settled)
    await gateway.proved()


@pytest.mark.holds("operations/start.md#start-failures-7")
async def test_start_waits_for_a_store_that_is_not_available_yet(yard: Yard) -> None:
    server = EmbeddedServer(yard.folder / "elsewhere")
    server.home.prepare()
    gateway = yard.make(store=f"unix://{server.home.choose_socket()}")
    gateway.launch()
    await until(lambda: _health(gateway))

    async def worker_up() -> bool:
        return (await gateway.metrics()).get("gateway_workers") == 1

    await until(worker_up)
    assert await gateway.readiness() == 503
    gateway.api_key = "sk-" + "a" * 43
    assert is_polite_refusal(await gateway.chat())
    assert "the store does not answer" in gateway.text

    await server.start()
    try:
        started = time.monotonic()
        async with gateway.session() as session:
            await session.accounts.create("test", balance=10 * NANO)
            gateway.api_key = (await session.key_service.create(session.actor, "test")).text
        async with at_once(within=2.0):
            await until(lambda: _served(gateway))
        print(f"store appeared: served {time.monotonic() - started:.2f} s later")
        await until(lambda: _ready(gateway))
        os.kill(gateway.pid, signal.SIGTERM)
        assert await gateway.ended() == 0
    finally:
        await server.stop()


async def _served(gateway: Served) -> bool:
    return (await gateway.chat()).status == 200


async def _ready(gateway: Served) -> bool:
    return await gateway.readiness() == 200


async def _health(gateway: Served) -> bool:
    return (await gateway.side("/healthz"))[0] == 200
