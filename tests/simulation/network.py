"""Connections in memory: bytes arrive later, in their order, or not at all.

Each write takes a time that the seed draws. A cut loses what is under way in both directions.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from tests.simulation.processes import CURRENT, Process

FASTEST, USUAL, TICK = 0.00002, 0.0005, 1e-7  # seconds


class _Socket:
    """What options of a socket are set on."""

    def setsockopt(self, *_: Any) -> None:
        """Nothing."""


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, process: Process | None) -> None:
        super().__init__({"socket": _Socket()})
        self.peer: End
        self.protocol: asyncio.Protocol
        self.process = process
        self._network = network
        self._closed = False
        self._arrival = 0.0  # loop time at which the last write arrives

    def write(self, data: Any) -> None:
        if not self._closed:
            self._later(self.peer._receive, bytes(data))

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        loop = self._network.loop
        # Later than the write before: timers of one time have no order.
        self._arrival = max(self._arrival + TICK, loop.time() + self._network.delay())
        # In no process: what was sent arrives although the sender is dead.
        loop.call_at(self._arrival, action, *args, context=self._network.context)

    def _receive(self, data: bytes) -> None:
        if not self._waits(self._receive, data) and not self._closed:
            self._in_process(self.protocol.data_received, data)

    def _waits(self, action: Callable[..., None], *args: Any) -> bool:
        """Whether the process hangs, and gets this when it goes on."""
        if self.process is None or self.process.hangs_until <= self._network.loop.time():
            return False
        self._network.loop.call_at(self.process.hangs_until, action, *args, context=self._network.context)
        return True

    def _in_process(self, action: Callable[..., object], *args: Any) -> None:
        if self.process is None:
            action(*args)
        elif self.process.alive:
            self.process.run(lambda: action(*args))

    def is_closing(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._end()

    def abort(self) -> None:
        self._end()

    def _end(self) -> None:
        if not self._closed:
            self._closed = True
            self._network.ends.pop(self, None)
            self._network.loop.call_soon(self._lost, context=self._network.context)
            self._later(self.peer._cut)

    def _cut(self) -> None:
        if not self._waits(self._cut) and not self._closed:
            self._closed = True
            self._network.ends.pop(self, None)
            self._lost()

    def _lost(self) -> None:
        self._in_process(self.protocol.connection_lost, None)

    def die(self) -> None:
        """The process is dead: the other end hears of it."""
        if not self._closed:
            self._closed = True
            self._network.ends.pop(self, None)
            self._later(self.peer._cut)


class Network:
    """All connections of a world; `listen` makes an address known."""

    def __init__(self, dice: random.Random) -> None:
        self.loop: asyncio.AbstractEventLoop
        self.context: Any  # of no process
        self.ends: dict[End, None] = {}  # in the order in which they were made
        self.refused: set[str] = set()  # addresses that take no connection
        self._dice = dice
        self._listening: dict[str, Callable[[], asyncio.Protocol]] = {}

    def delay(self) -> float:
        """Seconds until a write arrives."""
        return FASTEST + self._dice.expovariate(1 / USUAL)

    def listen(self, address: str, protocol: Callable[[], asyncio.Protocol]) -> None:
        """Serve an address with a protocol for each connection."""
        self._listening[address] = protocol

    async def connect(self, protocol: Callable[[], asyncio.Protocol], address: str) -> Any:
        """A connection from the running process."""
        await asyncio.sleep(self.delay())
        if address in self.refused:
            raise ConnectionRefusedError(f"{address} takes no connection")
        process = CURRENT.get(None)
        here, there = End(self, process), End(self, None)
        here.peer, there.peer = there, here
        here.protocol, there.protocol = protocol(), self._listening[address]()
        self.ends |= {here: None, there: None}
        if process is not None:
            process.on_kill.append(here.die)
        there.protocol.connection_made(there)
        here.protocol.connection_made(here)
        return here, here.protocol

    def cut(self, ends: list[End]) -> None:
        """Cut connections: what is under way is lost on both sides."""
        for end in ends:
            for one in (end, end.peer):
                one._arrival = 0.0
            end.peer._cut()
            end._cut()
