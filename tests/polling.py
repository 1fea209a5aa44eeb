"""Waiting for something to become true, without guessing how long it takes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, overload

T = TypeVar("T")

LOOK_EVERY = 0.005  # seconds
LOOKS = 20  # of a wait: later looks have more time between them, because a look may cost a query or a process
LONGEST_STEP = 1.0  # seconds
# A wait that is no promise of the gateway: a machine with other work may take seconds for what takes milliseconds.
PATIENCE = 120.0  # seconds: on a busy machine the importer, which lets all others go first, took more than 60
ENDS_WITHIN = 150.0  # seconds that a program may take which a test starts; a test has 180
STILL = 20  # looks in a row


@overload
async def until(probe: Callable[..., Awaitable[T | None]], *, within: float = PATIENCE) -> T: ...
@overload
async def until(probe: Callable[..., T | None], *, within: float = PATIENCE) -> T: ...
async def until(probe: Callable[..., Any], *, within: float = PATIENCE) -> Any:
    """The first truthy value of `probe`; AssertionError after `within` seconds.

    It is asked every few milliseconds at first, then after each twentieth of the time that has passed.

    A pause of the machine between two looks counts as `LONGEST_STEP` at most.
    """
    waited, before = 0.0, time.monotonic()
    while True:
        value = probe()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        if waited > within:
            raise AssertionError(f"still {value!r} after {within} s")
        await asyncio.sleep(max(LOOK_EVERY, min(waited / LOOKS, LONGEST_STEP)))
        now = time.monotonic()
        waited, before = waited + min(now - before, LONGEST_STEP), now


def until_blocking(probe: Callable[[], T | None], *, within: float = PATIENCE) -> T:
    """`until` for code without an event loop."""
    began = time.monotonic()
    while not (value := probe()):
        if (waited := time.monotonic() - began) > within:
            raise AssertionError(f"still {value!r} after {within} s")
        time.sleep(max(LOOK_EVERY, min(waited / LOOKS, LONGEST_STEP)))
    return value


async def until_still(read: Callable[[], T]) -> T:
    """The value of `read` once it has not changed for several looks.

    It shows that a party on this event loop is held back, which no event tells. Looks are counted and not seconds: a
    loop that has no processor does not look.
    """
    same, value = 0, read()
    while same < STILL:
        await asyncio.sleep(LOOK_EVERY)
        before, value = value, read()
        same = same + 1 if value == before else 0
    return value


@asynccontextmanager
async def loop_clock() -> AsyncIterator[Callable[[], float]]:
    """A clock that tells the seconds of the event loop's time since the block began.

    A task counts them in steps of `LOOK_EVERY`. Time in which the loop has no processor does not count, so a bound on
    this time holds on a busy machine.
    """
    looks = 0

    async def count() -> None:
        nonlocal looks
        while True:
            await asyncio.sleep(LOOK_EVERY)
            looks += 1

    counting = asyncio.create_task(count())
    try:
        yield lambda: looks * LOOK_EVERY
    finally:
        counting.cancel()


@asynccontextmanager
async def at_once(*, within: float = 0.25) -> AsyncIterator[None]:
    """The block ends within so many seconds of the event loop's time, see `loop_clock`; else AssertionError."""
    async with loop_clock() as elapsed:
        yield
        took = elapsed()
    assert took <= within, f"it took {took:.3f} s of the loop, and not {within}"


async def turns(count: int = 10) -> None:
    """Let the event loop turn: everything that was ready before, on loopback sockets too, has run afterwards."""
    for _ in range(count):
        await asyncio.sleep(0)
