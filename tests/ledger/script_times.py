"""The time that single commands take in the store, and an account that holds as much as an account may.

The time is the CPU time of the store's main thread, as the store itself reports it (INFO cpu): a store that waits for a
busy machine is not slow. Each measurement includes the reading of the command and of the INFO, some 0.05 ms.

A processor may be slow, and a host may take it away, which counts as CPU time. `Measured.bound` is a time of a usual
machine for the machine as it is now, by the time of a fixed script in the same store. A host that takes the processor
away makes one command longer, and never shorter: so `assert_short` measures up to three times.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from statistics import median
from typing import Any

from gateway.store import Store
from gateway.store.command import Argument, Script
from gateway.store.link import RedisLink

PIPELINE = 5000  # commands
ADDING = {"HSET", "SADD", "ZADD"}
FIXED = "local n = 0 for i = 1, 50000 do n = (n * 31 + i) % 1000003 end return n"
USUAL = 0.8  # ms of the fixed script
TRIES = 9
MEASUREMENTS = 3


class Measured:
    """The links of a store; `times` has what each command that was sent took in the store, in milliseconds."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._one = asyncio.Lock()
        self.times: list[tuple[float, str]] = []
        self.loaded: set[str] = set()  # the hashes of scripts that the server has

    @property
    def links(self) -> list[RedisLink]:
        return self._store.links

    def link(self, slot_key: str) -> Any:
        return MeasuredLink(self, self._store.link(slot_key))

    @asynccontextmanager
    async def measuring(self, what: str) -> AsyncIterator[None]:
        """Add the time of the store until the end of the block."""
        async with self._one:
            before = await self.cpu()
            yield
            self.times.append((await self.cpu() - before, what))

    async def cpu(self) -> float:
        """Milliseconds that the store's main thread has worked."""
        info = await self._store.client.info("cpu")
        return 1000 * float(info["used_cpu_user_main_thread"] + info["used_cpu_sys_main_thread"])

    async def bound(self, usual: float) -> float:
        """The milliseconds on this machine of what takes `usual` milliseconds on a usual one; never fewer."""
        times = []
        for _ in range(TRIES):
            before = await self.cpu()
            await self._store.client.eval(FIXED, 0)
            times.append(await self.cpu() - before)
        return usual * max(1.0, median(times) / USUAL)

    @property
    def longest(self) -> float:
        """The longest time of one command, in milliseconds."""
        return max(self.times)[0]


async def assert_short(store: Store, usual: float, act: Callable[[Measured], Awaitable[None]]) -> None:
    """Each command of `act`, which leaves the store as it is, takes at most `usual` ms of a usual machine."""
    found = []
    for _ in range(MEASUREMENTS):
        measured = Measured(store)
        await act(measured)
        bound = await measured.bound(usual)
        if measured.longest < bound:
            return
        found.append((*max(measured.times), bound))
    raise AssertionError(f"longest command of each measurement, in ms, with its bound: {found}")


class MeasuredLink:
    """A link that measures its commands one by one; a batch of the request path is measured by `Measured.measuring`."""

    def __init__(self, measured: Measured, link: RedisLink) -> None:
        self._measured = measured
        self.put, self.flush, self.address = link.put, link.flush, link.address
        self._link = link

    async def call(self, *args: Argument) -> Any:
        async with self._measured.measuring(str(args[0])):
            return await self._link.call(*args)

    def call_repeatable(self, *args: Argument) -> Any:
        return self.call(*args)

    async def eval(
        self, script: Script, keys: Sequence[str], args: Sequence[Argument], *, repeatable: bool = False
    ) -> Any:
        name = script.source.partition("\n")[0]
        if script.sha1 not in self._measured.loaded:  # compiled once per server, so it is no part of a call
            await self._link.call("SCRIPT", "LOAD", script.source)
            self._measured.loaded.add(script.sha1)
        async with self._measured.measuring(f"script {name}"):
            return await self._link.eval(script, keys, args, repeatable=repeatable)


async def fill(store: Store, commands: Iterator[Sequence[str | bytes | int]]) -> None:
    """Send many commands quickly: those that add to one key are sent as one."""
    while some := list(islice(commands, PIPELINE)):
        pipeline, added = store.client.pipeline(transaction=False), dict[tuple[Any, ...], list[Any]]()
        for command in some:
            if command[0] in ADDING:
                added.setdefault(tuple(command[:2]), []).extend(command[2:])
            else:
                pipeline.execute_command(*command)
        for start, rest in added.items():
            pipeline.execute_command(*start, *rest)
        await pipeline.execute()
