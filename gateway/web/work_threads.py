"""Threads for work that takes long, a few for each kind, so that no kind of it holds up another one.

The default threads of the event loop are left to what is short, such as reading a secret: long work in them would delay
all who need one. The routes whose work runs here have limits or take turns, so little of it waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final, ParamSpec, TypeVar

from gateway.web.fair_turns import FairTurns

P = ParamSpec("P")
T = TypeVar("T")


class WorkThreads:
    """Threads that are started at their first use, and end with the process."""

    def __init__(self, name: str, at_once: int) -> None:
        self._executor = ThreadPoolExecutor(at_once, thread_name_prefix=name)

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in one of the threads. A cancelled caller does not stop it once it has begun."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *args, **kwargs))


LONG: Final = WorkThreads("long", 2)  # reports, statements, files and imports
PAGES: Final = WorkThreads("pages", 2)  # the figures and charts of pages
CHECKS: Final = WorkThreads("checks", 2)  # of the configuration and the plugins
NAMES: Final = WorkThreads("names", 1)  # the nearest of many names


class FairThreads:
    """`at_once` threads; `limits` are those of `FairTurns`."""

    def __init__(self, name: str, at_once: int, **limits: Any) -> None:
        self._turns = FairTurns(at_once, **limits)
        self._executor = ThreadPoolExecutor(at_once, thread_name_prefix=name)

    async def run(self, who: str, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call it in a thread when it is the turn of `who`; TooManyRequests.

        The thread ends its work even if nobody waits for it any more; its turn ends with it.
        """
        async with self._turns.turn_of(who):
            working = asyncio.get_running_loop().run_in_executor(self._executor, partial(work, *args, **kwargs))
            try:
                return await asyncio.shield(working)
            except asyncio.CancelledError:
                await asyncio.wait({working})
                raise

    def close(self) -> None:
        """End the threads; what has not begun is left out."""
        self._executor.shutdown(wait=False, cancel_futures=True)
