"""Who runs on which core: the contender alone on the first, everything that measures it on the others.

A child inherits the affinity of the thread that starts it, so `with pinned(cores):` around a start is all it takes.
Two workers want two cores; where none is then left for the load, it shares the last one and `Cores.shared` says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec


class Cores(msgspec.Struct, frozen=True):
    """Which cores the contender has, and which are left to the mock upstream, the store and the load."""

    contender: tuple[int, ...]
    load: tuple[int, ...]

    @property
    def shared(self) -> bool:
        """True when the load takes time from the contender: throughput is then a lower bound."""
        return bool(set(self.contender) & set(self.load))


def available_cores() -> tuple[int, ...]:
    """The cores this process may use; ask before pinning it."""
    return tuple(sorted(os.sched_getaffinity(0)))


def share_out(cores: tuple[int, ...], *, workers: int) -> Cores:
    """One core for each worker from the front, the rest for the load, at least the last one."""
    return Cores(contender=cores[:workers], load=cores[workers:] or cores[-1:])


@contextmanager
def pinned(cores: Iterable[int]) -> Iterator[None]:
    """Run a block, and the children it starts, on these cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, set(cores))
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)
