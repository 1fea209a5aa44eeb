"""Questions between the gateways of one store: each answers once, and one that does not is counted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from gateway.admin.machines import Machine, announce
from gateway.runtime.local_socket import CANCEL
from gateway.runtime.other_machines import MachineAnswer, OtherMachines
from gateway.store import Store
from tests.polling import until
from tests.world import OpenWorld


@asynccontextmanager
async def machine(
    store: Store, id_: str, *, slow: bytes = b"", go: asyncio.Event | None = None
) -> AsyncIterator[OtherMachines]:
    """A gateway that repeats what it is asked; the question `slow` has an answer after `go` only."""

    async def repeat(name: str, payload: bytes) -> MachineAnswer:
        if go is not None and payload == slow:
            await go.wait()
        return MachineAnswer("host:8080", [name.encode(), payload])

    await announce(store, Machine(id_, f"{id_}:8080", "aaa", "1.0"))
    found = OtherMachines(id_, repeat)
    running = asyncio.create_task(found.run(store))
    try:
        yield found
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_every_other_machine_answers_a_question_once(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a, machine(w.store, "b"), machine(w.store, "c"):
        await until(lambda: a._store is not None)
        answers, silent = await a.ask("list", b"x", within=60.0)
        assert [one.machine for one in answers] == ["host:8080"] * 2, "also if they answer the same"
        assert {tuple(one.workers) for one in answers} == {(b"list", b"x")} and silent == 0
        assert [key async for key in w.store.client.scan_iter("machines:*")] == [], "nothing stays in the store"


@pytest.mark.holds("admin-api.md#running-calls-1")
async def test_machine_that_does_not_answer_is_counted_and_its_question_expires(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a, machine(w.store, "b"):
        await announce(w.store, Machine("gone", "gone:8080", "aaa", "1.0"))
        await until(lambda: a._store is not None)
        for _ in range(2):
            answers, silent = await a.ask("list", b"x", within=1.2)
            assert ([one.machine for one in answers], silent) == (["host:8080"], 1)
        assert await w.store.client.scard("machines:asked:gone") == 2
        assert 0 < await w.store.client.ttl("machines:asked:gone") <= 10


async def test_answer_of_a_release_that_answers_in_another_form_counts_as_none(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a:
        await announce(w.store, Machine("newer", "newer:8080", "aaa", "9.0"))
        await until(lambda: a._store is not None)
        asking = asyncio.create_task(a.ask("list", b"x", within=1.5))
        asked: Any = await until(lambda: w.store.client.spop("machines:asked:newer"))
        ticket = msgspec.msgpack.decode(asked)[0]
        await w.store.client.sadd(f"machines:answers:{ticket}", b"nonsense")
        assert await asking == ([], 1)


async def test_question_of_a_release_that_asks_in_another_form_is_passed_over(world: OpenWorld) -> None:
    async with world() as w:
        await w.store.client.sadd("machines:asked:b", b"\x93nonsense", b"")
        async with machine(w.store, "a") as a, machine(w.store, "b"):
            await until(lambda: a._store is not None)
            answers, silent = await a.ask("list", b"x", within=60.0)
            assert ([one.machine for one in answers], silent) == (["host:8080"], 0)


async def test_question_is_answered_while_a_worker_does_not_answer_the_one_before(world: OpenWorld) -> None:
    go = asyncio.Event()
    async with world() as w, machine(w.store, "a") as a, machine(w.store, "b", slow=b"slow", go=go):
        await until(lambda: a._store is not None)
        first = asyncio.create_task(a.ask("list", b"slow", within=60.0))
        await until(lambda: w.store.client.exists("machines:asked:b"))
        await until(lambda: _is_taken(w.store))
        answers, silent = await a.ask("list", b"quick", within=60.0)
        assert ([one.workers for one in answers], silent) == ([[b"list", b"quick"]], 0)
        go.set()
        assert [one.workers for one in (await first)[0]] == [[b"list", b"slow"]]


async def _is_taken(store: Store) -> bool:
    return not await store.client.exists("machines:asked:b")


@pytest.mark.holds("security.md#shares-5")
async def test_cancellation_is_answered_while_many_lists_are_asked_for(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a, machine(w.store, "b"):
        await until(lambda: a._store is not None)
        lists = [asyncio.create_task(a.ask("list", str(number).encode(), within=2.8)) for number in range(120)]
        await until(lambda: w.store.client.scard("machines:asked:b"))
        answers, silent = await a.ask(CANCEL, b"x", within=60.0)
        assert ([one.workers for one in answers], silent) == ([[CANCEL.encode(), b"x"]], 0)
        assert {len(answers) + silent for answers, silent in await asyncio.gather(*lists)} == {1}


async def test_equal_lists_at_the_same_time_are_one_question(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a:
        await announce(w.store, Machine("gone", "gone:8080", "aaa", "1.0"))
        await until(lambda: a._store is not None)
        found = await asyncio.gather(*(a.ask("list", b"x", within=0.5) for _ in range(20)))
        assert found == [([], 1)] * 20
        assert await w.store.client.scard("machines:asked:gone") == 1
        await a.ask("list", b"x", within=0.1)
        assert await w.store.client.scard("machines:asked:gone") == 2, "a later one is asked"


async def test_machine_that_can_take_no_more_questions_is_silent_at_once(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a:
        await announce(w.store, Machine("full", "full:8080", "aaa", "1.0"))
        await w.store.client.sadd("machines:cancels:full", *map(str, range(50)))
        await until(lambda: a._store is not None)
        async with asyncio.timeout(20.0):
            assert await a.ask(CANCEL, b"x", within=600.0) == ([], 1)


@pytest.mark.holds("security.md#shares-5")
async def test_lists_that_nobody_waits_for_leave_room_to_others(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a, machine(w.store, "b"):
        await until(lambda: a._store is not None)
        for number in range(150):
            asking = asyncio.create_task(a.ask("list", str(number).encode(), within=2.8))
            await asyncio.sleep(0)
            asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        assert not a._lists
        answers, silent = await a.ask("list", b"mine", within=60.0)
        assert ([one.workers for one in answers], silent) == ([[b"list", b"mine"]], 0)


async def test_list_goes_on_while_one_of_its_askers_waits(world: OpenWorld) -> None:
    async with world() as w, machine(w.store, "a") as a, machine(w.store, "b"):
        await until(lambda: a._store is not None)
        first, second = [asyncio.create_task(a.ask("list", b"x", within=60.0)) for _ in range(2)]
        await asyncio.sleep(0)
        first.cancel()
        answers, silent = await second
        assert ([one.workers for one in answers], silent) == ([[b"list", b"x"]], 0)
