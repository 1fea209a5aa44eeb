"""Several workers on one port: each serves, counts add up, and the death of one is nobody's loss."""

import asyncio
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.routing.circuit_sync import HASH, LEASE_FIELD
from tests.polling import PATIENCE, until
from tests.processes.conftest import Serve, Yard
from tests.processes.served import MODELS, Served, children, descriptors, install_plugin, is_alive


def sockets_of(pid: int) -> int:
    """Connections are sockets among the open files."""
    return sum("socket:" in str(file.readlink()) for file in Path(f"/proc/{pid}/fd").iterdir())


async def replaced(gateway: Served, dead: int, *, workers: int = 2) -> None:
    """A successor serves."""

    async def serving() -> bool:
        return dead not in gateway.workers and (await gateway.metrics()).get("gateway_workers") == workers

    await until(serving)


@pytest.mark.holds("scaling.md#limits-1")
async def test_both_workers_serve_on_one_port_add_up_their_counts_and_move_an_account_at_once(serve: Serve) -> None:
    gold = '[groups.gold]\n[models.gold]\nprovider = "fake"\nmodel = "quick"\ngroups = ["gold"]\nfree = true\n'
    gateway = await serve(MODELS + gold, workers=2)
    answers = await asyncio.gather(*(gateway.chat() for _ in range(60)))
    assert Counter(answer.status for answer in answers) == {200: 60}
    await until(lambda: _in_flight(gateway, 0))  # a call may not have ended yet when its answer has come
    samples = await gateway.metrics()
    labels = "{endpoint=chat,model=quick,outcome=ok,provider=fake}"
    assert samples[f"gateway_requests_total{labels}"] == 60
    assert samples["gateway_request_duration_seconds_count{endpoint=chat,model=quick}"] == 60
    assert samples["gateway_request_duration_seconds_bucket{endpoint=chat,le=+Inf,model=quick}"] == 60
    assert samples["gateway_tokens_total{kind=out,model=quick}"] == 60 * 3
    assert samples["gateway_workers"] == 2

    streams = await gateway.flowing(24, "lasting")
    assert (await gateway.metrics())["gateway_in_flight{endpoint=chat}"] == 24
    open_sockets = [sockets_of(pid) for pid in gateway.workers]
    assert min(open_sockets) > 8, f"one worker got none of 24 connections: {open_sockets}"
    for stream in streams:
        assert (await stream.ended()).whole
    await until(lambda: _in_flight(gateway, 0))

    async def statuses(model: str) -> set[int]:
        return {answer.status for answer in await asyncio.gather(*(gateway.chat(model) for _ in range(20)))}

    assert (await statuses("quick"), await statuses("gold")) == ({200}, {403})
    # The rules of the new group hold at the next request.
    assert (await gateway.command("accounts", "move", "test", "gold"))["group"] == "gold"
    assert (await statuses("quick"), await statuses("gold")) == ({403}, {200})


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-1")
async def test_killed_worker_cuts_its_streams_and_nothing_else(serve: Serve) -> None:
    gateway = await serve(workers=2)
    for _ in range(20):
        assert (await gateway.chat()).status == 200
    before = await gateway.metrics()
    streams = await gateway.flowing(20, "lasting")
    victim = gateway.workers[0]
    os.kill(victim, signal.SIGKILL)

    statuses: Counter[int] = Counter()
    async with asyncio.timeout(PATIENCE):
        while victim in gateway.workers or (await gateway.metrics()).get("gateway_workers") != 2:
            statuses[(await gateway.chat()).status] += 1  # some queue on the dead worker's socket for its successor
    assert set(statuses) == {200}

    for stream in streams:
        await stream.ended()
        assert stream.whole or (stream.failure is not None and "[DONE]" not in stream.text)
    cut = sum(not stream.whole for stream in streams)
    assert 0 < cut < 20

    await until(lambda: _in_flight(gateway, 0))
    after = await gateway.metrics()
    assert after["gateway_worker_restarts_total"] == 1
    for name, value in before.items():
        if name.partition("{")[0].endswith(("_total", "_count", "_bucket", "_sum")):
            assert after[name] >= value, f"{name} went back"
    await gateway.proved()


FAILING = """
[providers.fake.models.broken]
fail_after = 0
error = "UpstreamUnreachable"

[models.broken]
provider = "fake"
free = true
"""


@pytest.mark.holds("routing.md#health-5")
async def test_health_forgets_the_circuits_of_a_killed_worker(serve: Serve) -> None:
    gateway = await serve(MODELS + FAILING)

    async def open_targets() -> list[str]:
        rows = await gateway.command("models", "--health")
        return [row["model"] for row in rows if row["state"] != "ok"]

    async def is_open() -> bool:
        await gateway.chat("broken")
        return await open_targets() == ["broken"]

    await until(is_open)
    (victim,) = gateway.workers
    os.kill(victim, signal.SIGKILL)
    await replaced(gateway, victim, workers=1)
    assert await open_targets() == ["broken"], "its lease has not ended"
    async with gateway.session() as session:  # as half a minute would end it
        client: Any = session.store.client
        for name in await client.hkeys(HASH):
            if name.startswith(LEASE_FIELD.encode()):
                await client.hset(HASH, name, 1)

    async def forgotten() -> bool:
        return await open_targets() == []

    await until(forgotten)


RETRIED = """
[providers.fake.models.busy]
fail_after = 0
error = "UpstreamOverloaded"
[models.second]
targets = [{ provider = "fake", model = "busy" }, { provider = "fake", model = "endless" }]
strategy = "in_order"
price = { input = 1000, output = 2000 }
default_reserve_output = 100
"""


@pytest.mark.holds(
    "operations/processes.md#what-happens-when-a-process-ends-1", "routing.md#what-each-attempt-answered-1"
)
async def test_calls_of_a_killed_worker_are_charged_to_the_chunk_at_once_with_what_their_attempts_answered(
    serve: Serve,
) -> None:
    gateway = await serve(MODELS + RETRIED)
    retried = await gateway.stream("second").flowing(5)
    streams = [await gateway.stream("endless").flowing(5 * n) for n in range(1, 5)]
    waiting = asyncio.create_task(gateway.chat("slow"))  # whole: nothing of it is delivered
    await until(lambda: _held_by(gateway, 6))
    os.kill(gateway.workers[0], signal.SIGKILL)
    await until(lambda: _held_by(gateway, 0))
    with pytest.raises(aiohttp.ClientError):
        await waiting
    charged = {line.request_id: line for line in await gateway.charges()}
    answers = charged[retried.request_id].json_form()["answers"]
    assert [(answer["model"], answer["code"], answer["status"]) for answer in answers] == [
        ("second", "server_is_overloaded", None), ("second", "worker_died", None)
    ]  # fmt: skip
    for stream in [retried, *streams]:
        assert not (await stream.ended()).whole
        line = charged.pop(stream.request_id)
        assert line.meta["outcome"] == "worker_died"
        assert line.meta["estimated"]
        # The worker may have been killed between counting a chunk, of a token at most, and sending it.
        assert -(-stream.units // 4) <= line.meta["usage"]["out_text"] <= -(-stream.units // 4) + 1
    assert not charged
    await gateway.proved()


async def _in_flight(gateway: Served, calls: int) -> bool:
    return (await gateway.metrics()).get("gateway_in_flight{endpoint=chat}") == calls


async def _held_by(gateway: Served, calls: int) -> bool:
    async with gateway.session() as session:
        return await session.store.client.hlen("{a:test}:rv") == calls


async def test_calls_of_a_gateway_with_all_processes_killed_are_charged_at_the_next_start(serve: Serve) -> None:
    gateway = await serve()
    stream = await gateway.stream("endless").flowing(5)
    assert gateway.process is not None
    for pid in [gateway.pid, *children(gateway.pid)]:
        os.kill(pid, signal.SIGKILL)
    await stream.ended()
    await gateway.ended()
    await gateway.started()
    await until(lambda: _held_by(gateway, 0))
    (line,) = await gateway.charges()
    assert (line.request_id, line.meta["outcome"]) == (stream.request_id, "worker_died")
    await gateway.proved()


async def test_single_worker_is_replaced_while_requests_wait_without_leaks(serve: Serve) -> None:
    gateway = await serve()
    counts = []
    for _ in range(3):
        victim = gateway.workers[0]
        os.kill(victim, signal.SIGKILL)
        await until(lambda victim=victim: not is_alive(victim))
        answers = await asyncio.gather(*(gateway.chat() for _ in range(10)))
        assert {answer.status for answer in answers} == {200}
        print(f"worker killed: served again after {max(answer.seconds for answer in answers):.2f} s")
        await replaced(gateway, victim, workers=1)
        counts.append(descriptors(gateway.pid))
    assert max(counts) - min(counts) <= 1, counts  # a scrape's connection may still be open
    assert len(children(gateway.pid)) == 3  # worker, store, importer


@pytest.mark.holds("operations/start.md#signals-5")
async def test_stopped_worker_drains_while_another_one_serves(serve: Serve) -> None:
    gateway = await serve(drain_timeout=60.0)
    old = gateway.workers[0]
    stream = await gateway.stream("endless").flowing()
    os.kill(old, signal.SIGTERM)
    answers = [await gateway.chat() for _ in range(5)]
    assert {answer.status for answer in answers} == {200}
    await stream.flowing(stream.words + 3)  # the old one still serves what it had begun
    stream.leave()
    await until(lambda: not is_alive(old))
    assert "worker 0 drains; another takes its place" in gateway.text


PLUGIN = """
import os, pathlib
from gateway import hookimpl

@hookimpl
def startup(gateway):
    if pathlib.Path({flag!r}).exists():
        os._exit(7)
"""


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-1")
async def test_worker_that_dies_at_every_start_is_restarted_with_delays_and_the_others_serve_its_share(
    yard: Yard,
) -> None:
    gateway = yard.make(workers=2)
    flag = gateway.folder / "dying"
    install_plugin(gateway, "dying", PLUGIN.format(flag=str(flag)))
    await gateway.started(workers=2)
    await asyncio.to_thread(gateway.create_key)
    flag.touch()
    os.kill(gateway.workers[0], signal.SIGKILL)
    await until(lambda: gateway.text.count("ended with exit code 7") >= 3)
    pauses = [float(line.rsplit(" ", 2)[1]) for line in gateway.text.splitlines() if "exit code 7" in line]
    assert pauses == sorted(pauses)
    assert pauses[-1] >= 0.4
    answers = [await gateway.chat() for _ in range(20)]  # none waits at the dead worker's socket
    assert {answer.status for answer in answers} == {200}
    flag.unlink()
    await until(lambda: _workers_are(gateway, 2))


async def _workers_are(gateway: Served, count: int) -> bool:
    return (await gateway.metrics()).get("gateway_workers") == count
