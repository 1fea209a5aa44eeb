"""Turns are shared between addresses, and few may wait."""

from __future__ import annotations

import asyncio

import pytest

from gateway.errors import TooManyRequests
from gateway.web.fair_turns import FairTurns
from tests.polling import until

REFUSAL = "Too many wait"
HOSTILE, PERSON = "198.51.100.1", "192.0.2.1"


class Work:
    """Requests that have or want a turn, and the order in which they got one."""

    def __init__(self, turns: FairTurns) -> None:
        self.turns = turns
        self.served: list[str] = []
        self.go_on = asyncio.Semaphore(0)
        self.tasks: list[asyncio.Task[None]] = []

    async def _one(self, address: str) -> None:
        async with self.turns.turn(address):
            self.served.append(address)
            await self.go_on.acquire()

    async def ask(self, address: str, times: int = 1) -> None:
        self.tasks += [asyncio.create_task(self._one(address)) for _ in range(times)]
        for _ in range(3):
            await asyncio.sleep(0)

    async def end(self) -> list[BaseException | None]:
        for _ in self.tasks:
            self.go_on.release()
        return await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_person_is_next_whatever_number_of_others_waits() -> None:
    work = Work(FairTurns(2, refusal=REFUSAL))
    await work.ask(HOSTILE, 20)
    await work.ask(PERSON)
    work.go_on.release()
    await until(lambda: len(work.served) == 3)
    assert work.served == [HOSTILE, HOSTILE, PERSON]
    await work.end()


@pytest.mark.holds("operations/network.md#connections-6")
async def test_person_goes_before_twenty_addresses_that_had_turns_of_late() -> None:
    work = Work(FairTurns(1, refusal=REFUSAL))
    hostile = [f"198.51.100.{number}" for number in range(20)]
    for address in hostile:
        await work.ask(address, 2)
    for done in range(20):
        work.go_on.release()
        await until(lambda done=done: len(work.served) == done + 2)
    await work.ask(PERSON)
    work.go_on.release()
    await until(lambda: len(work.served) == 22)
    assert work.served[-1] == PERSON
    await work.end()


async def test_addresses_of_one_ipv6_customer_share_turns() -> None:
    work = Work(FairTurns(1, refusal=REFUSAL))
    for number in range(5):
        await work.ask(f"2001:db8::{number}")
    await work.ask(PERSON)
    work.go_on.release()
    await until(lambda: len(work.served) == 2)
    assert work.served[1] == PERSON
    await work.end()


@pytest.mark.holds("operations/network.md#connections-6", "security.md#shares-8")
async def test_person_finds_room_and_is_next_where_as_many_networks_of_one_customer_wait_as_can() -> None:
    work = Work(FairTurns(1, share=1, most=4, refusal=REFUSAL))
    for number in range(6):
        await work.ask(f"2001:db8:0:{number:x}::1")
    await work.ask(PERSON)
    work.go_on.release()
    await until(lambda: len(work.served) == 2)
    assert work.served[1] == PERSON
    assert [isinstance(result, TooManyRequests) for result in await work.end()] == [False] * 4 + [True] * 2 + [False]


async def test_networks_of_one_customer_share_what_can_wait() -> None:
    work = Work(FairTurns(1, most=4, refusal=REFUSAL))
    await work.ask("2001:db8::1", 5)
    await work.ask("2001:db8:0:1::1")
    assert [isinstance(result, TooManyRequests) for result in await work.end()] == [False] * 4 + [True, False]


@pytest.mark.holds("operations/network.md#connections-6")
async def test_few_wait_for_one_address() -> None:
    work = Work(FairTurns(1, most_of_one=3, refusal=REFUSAL))
    await work.ask(HOSTILE, 6)
    await work.ask(PERSON)
    ended = await work.end()
    assert [isinstance(result, TooManyRequests) for result in ended] == [False] * 4 + [True] * 2 + [False]


@pytest.mark.holds("operations/network.md#connections-6")
async def test_address_with_the_most_makes_room_where_too_many_wait() -> None:
    work = Work(FairTurns(1, most=4, refusal=REFUSAL))
    await work.ask(HOSTILE, 5)
    await work.ask(PERSON)
    ended = await work.end()
    assert [isinstance(result, TooManyRequests) for result in ended] == [False] * 4 + [True, False]
    assert work.served[1] == PERSON


async def test_place_and_turn_of_a_request_that_leaves_go_to_others() -> None:
    work = Work(FairTurns(1, refusal=REFUSAL))
    await work.ask(HOSTILE, 3)
    work.tasks[1].cancel()
    work.tasks[0].cancel()
    await until(lambda: len(work.served) == 2)
    work.go_on.release()
    with pytest.raises(asyncio.CancelledError):
        await work.tasks[0]
    await work.tasks[2]
    async with asyncio.timeout(60), work.turns.turn(PERSON):
        pass


async def test_turn_that_is_given_to_a_request_that_leaves_at_this_moment_is_passed_on() -> None:
    work = Work(FairTurns(1, refusal=REFUSAL))
    await work.ask(HOSTILE, 2)
    work.go_on.release()
    await until(work.tasks[0].done)
    work.tasks[1].cancel()
    await asyncio.gather(*work.tasks, return_exceptions=True)
    async with asyncio.timeout(60), work.turns.turn(PERSON):
        pass


async def test_one_name_has_its_share_of_the_turns_and_leaves_the_others_free() -> None:
    work = Work(FairTurns(4, share=2, refusal=REFUSAL))
    await work.ask(HOSTILE, 5)
    assert work.served == [HOSTILE] * 2
    await work.ask(PERSON, 3)
    assert work.served == [HOSTILE] * 2 + [PERSON] * 2
    assert await work.end() == [None] * 8
    assert sorted(work.served) == sorted([HOSTILE] * 5 + [PERSON] * 3), "nobody is forgotten"


async def test_turn_goes_to_a_name_that_has_less_than_its_share() -> None:
    work = Work(FairTurns(2, share=1, refusal=REFUSAL))
    await work.ask(HOSTILE, 3)
    await work.ask(PERSON, 2)
    assert work.served == [HOSTILE, PERSON]
    for served in (3, 4, 5):
        work.go_on.release()
        await until(lambda served=served: len(work.served) == served)
    assert await work.end() == [None] * 5
