"""Awaits many awaitables: a bounded number at a time, until all have ended, and without references to their exceptions.

A link to the store takes 10,000 commands without a reply, and refuses more. So whatever sends a command for each key,
account or line uses `gather_bounded`, or works on one of the `batches` after the other. Sharp edge: a call of a link is
sent when it is made, not when it is awaited, so the iterable must be lazy: a generator, or `map`.

`asyncio.gather` alone either leaves the others running or returns the exceptions in a list. If one of that list is
raised, its traceback refers to the list, and only the garbage collector frees them. When a store is unreachable, every
entry of a journal would leave such an exception each second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator
from itertools import islice
from typing import TypeVar

AT_ONCE = 500  # awaitables, each of which sends one or a few commands

T = TypeVar("T")

#: Is called with what is done, how many of it are done, and how many there are: ("accounts audited", 100, 20_000).
Progress = Callable[[str, int, int], None]


def unwatched(work: str, done: int, total: int) -> None:
    """For work that nobody waits for."""


def counted(items: Collection[T], work: str, progress: Progress) -> Iterator[T]:
    """The items. An item counts as done when the next one is taken."""
    for done, item in enumerate(items):
        progress(work, done, len(items))
        yield item
    progress(work, len(items), len(items))


def batches(items: Iterable[T], size: int = AT_ONCE) -> Iterator[list[T]]:
    """The items, `size` at a time; an item is taken from the iterable when its batch begins."""
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


async def gather_bounded(awaitables: Iterable[Awaitable[T]], at_once: int = AT_ONCE) -> list[T]:
    """The results in order. The first failure is raised once its batch has ended; later batches are not begun."""
    results: list[T] = []
    for batch in batches(awaitables, at_once):
        try:
            results += await gather_all(batch)
        finally:
            del batch  # the traceback of a failure refers to this frame
    return results


async def gather_rolling(awaitables: Iterable[Awaitable[T]], at_once: int) -> list[T]:
    """The results in order, for work of different length: when one ends, the next is begun.

    After a failure none is begun. The first failure is raised once all that were begun have ended.
    """
    results: dict[int, T] = {}
    waiting = enumerate(awaitables)
    is_failed = False

    async def work(begun: tuple[int, Awaitable[T]] | None) -> None:
        nonlocal is_failed
        try:
            while begun is not None:
                number, awaitable = begun
                results[number] = await awaitable
                begun = None if is_failed else next(waiting, None)
        except BaseException:
            is_failed = True
            raise

    first = list(islice(waiting, at_once))
    try:
        await gather_all(map(work, first))
    finally:
        for _, awaitable in first:
            if asyncio.iscoroutine(awaitable):
                awaitable.close()  # its task was cancelled before it began
    return [results[number] for number in range(len(results))]


async def outcomes_bounded(awaitables: Iterable[Awaitable[T]], at_once: int = AT_ONCE) -> list[T | BaseException]:
    """The result or the exception of each, in order."""
    outcomes: list[T | BaseException] = []
    for batch in batches(awaitables, at_once):
        outcomes += await asyncio.gather(*batch, return_exceptions=True)
    return outcomes


async def gather_all(awaitables: Iterable[Awaitable[T]]) -> list[T]:
    """The results. If one or more failed, the first failure is raised once all have ended."""
    results: list[T] = []
    failure: BaseException | None = None
    for answer in await asyncio.gather(*awaitables, return_exceptions=True):
        if not isinstance(answer, BaseException):
            results.append(answer)
        elif failure is None:
            failure = answer
    if failure is None:
        return results
    try:
        raise failure
    finally:
        del failure, answer, awaitables
