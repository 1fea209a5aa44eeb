"""Connections in memory: bytes arrive later, in their order, or not at all.

Each write takes a time that the seed draws. A cut loses what is under way in both directions.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable
from typing import Any, cast

from tests.simulation.processes import CURRENT, Process

FASTEST, USUAL, TICK = 0.00002, 0.0005, 1e-7  # seconds
SPLIT = 0.03  # of the writes arrive in two parts


class _Socket:
    """What options of a socket are set on."""

    family = socket.AF_UNIX

    def setsockopt(self, *_: Any) -> None:
        """Nothing."""


class End(asyncio.Transport):
    """One end of a connection."""

    def __init__(self, network: Network, process: Process | None) -> None:
        super().__init__({"socket": _Socket()})
        self.peer: End
        self.protocol: asyncio.BaseProtocol
        self.process = process
        self._network = network
        self._closed = False
        self._arrival = 0.0  # loop time at which the last write arrives
        self._unread: list[bytes] | None = None  # while its owner does not read

    def write(self, data: Any) -> None:
        if self._closed:
            return
        content = bytes(data)
        if len(content) > 1 and self._network.splits():
            at = len(content) // 2
            self._later(self.peer._receive, content[:at])
            content = content[at:]
        self._later(self.peer._receive, content)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Nothing: the other end takes everything."""

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self._unread = []

    def resume_reading(self) -> None:
        unread, self._unread = self._unread or [], None
        for data in unread:
            self._network.loop.call_soon(self._receive, data, context=self._network.context)

    def _later(self, action: Callable[..., None], *args: Any) -> None:
        loop = self._network.loop
        # Later than the write before: timers of one time have no order.
        self._arrival = max(self._arrival + TICK, loop.time() + self._network.delay())
        # In no process: what was sent arrives although the sender is dead.
        loop.call_at(self._arrival, action, *args, context=self._network.context)

    def _receive(self, data: bytes) -> None:
        if self._waits(self._receive, data) or self._closed:
            return
        if self._unread is not None:
            self._unread.append(data)
        elif isinstance(self.protocol, asyncio.BufferedProtocol):
            self._in_process(self._fill, self.protocol, data)
        else:
            self._in_process(cast("asyncio.Protocol", self.protocol).data_received, data)

    def _fill(self, protocol: asyncio.BufferedProtocol, data: bytes) -> None:
        buffer = memoryview(protocol.get_buffer(len(data)))
        size = min(len(buffer), len(data))
        buffer[:size] = data[:size]
        protocol.buffer_updated(size)
        if size < len(data):
            self._receive(data[size:])

    def begin(self) -> None:
        """Tell the owner of the connection."""
        if not self._waits(self.begin):
            self._in_process(self.protocol.connection_made, self)

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
        self._listening: dict[str, tuple[Callable[[], asyncio.BaseProtocol], Process | None]] = {}

    def delay(self) -> float:
        """Seconds until a write arrives."""
        return FASTEST + self._dice.expovariate(1 / USUAL)

    def splits(self) -> bool:
        """Whether a write arrives in two parts."""
        return self._dice.random() < SPLIT

    def listen(
        self, address: str, protocol: Callable[[], asyncio.BaseProtocol], process: Process | None = None
    ) -> None:
        """Serve an address with a protocol for each connection, in a process, as long as that lives."""
        self._listening[address] = (protocol, process)

    async def connect(self, protocol: Callable[[], asyncio.Protocol], address: str) -> Any:
        """A connection from the running process."""
        await asyncio.sleep(self.delay())
        make, server = self._listening[address]
        if address in self.refused or (server is not None and not server.alive):
            raise ConnectionRefusedError(f"{address} takes no connection")
        process = CURRENT.get(None)
        here, there = End(self, process), End(self, server)
        here.peer, there.peer = there, here
        here.protocol, there.protocol = protocol(), make() if server is None else server.run(make)
        self.ends |= {here: None, there: None}
        for end in (here, there):
            if end.process is not None:
                end.process.on_kill.append(end.die)
        there.begin()
        here.begin()
        return here, here.protocol

    def cut(self, ends: list[End]) -> None:
        """Cut connections: what is under way is lost on both sides."""
        for end in ends:
            for one in (end, end.peer):
                one._arrival = 0.0
            end.peer._cut()
            end._cut()
