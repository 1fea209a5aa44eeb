"""The store of a world: the model behind connections, with the faults of a server."""

from __future__ import annotations

import asyncio
import copy
from functools import cache
from typing import Any

import hiredis

from tests.simulation.clock_loop import Clock
from tests.simulation.model_server import ModelServer
from tests.simulation.network import TICK, End, Network
from tests.simulation.replies import encode
from tests.simulation.scripts import Engine

ADDRESS = "/store"
_NOTHING = object()


def push(*words: bytes | int) -> bytes:
    """A message of a subscription."""
    return b">%d\r\n" % len(words) + b"".join(map(encode, words))


@cache
def _shared_engine() -> Engine:
    return Engine()


class _Connection(asyncio.Protocol):
    """A connection of the store."""

    def __init__(self, store: StoreEnd) -> None:
        self._store = store
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._end: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._end = transport

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (request := self._reader.gets()) is not _NOTHING:
            self._store.received(self._end, request)


class StoreEnd:
    """The server, and what may happen to it."""

    def __init__(self, clock: Clock, network: Network) -> None:
        self._clock, self._network = clock, network
        self.server = ModelServer(self.micros, run_id="run-1", engine=_shared_engine())
        self.ahead = 0.0  # seconds by which its clock is ahead
        self.lose_replies = 0  # how many further commands are run without an answer, before a cut
        self.paused_until = 0.0  # seconds of the clock
        self._runs = 1
        self._waiting: list[tuple[End, list[bytes]]] = []  # while it is paused
        self._subscribed: dict[bytes, list[End]] = {}
        network.listen(ADDRESS, lambda: _Connection(self))

    def micros(self) -> int:
        """Its time, Unix microseconds."""
        return int((self._clock.began + self._clock.passed + self.ahead) * 1e6)

    def received(self, end: End, request: list[bytes]) -> None:
        """Answer a command, now or when the pause is over."""
        if self._waiting or self._clock.passed < self.paused_until:  # a connection is answered in order
            if not self._waiting:
                loop = self._network.loop
                wait = self.paused_until - self._clock.passed
                loop.call_later(wait, self._go_on, context=self._network.context)
            self._waiting.append((end, request))
            return
        name = request[0].upper()
        if name == b"SUBSCRIBE":
            self._subscribed.setdefault(request[1], []).append(end)
            end.write(push(b"subscribe", request[1], 1))
            return
        if name == b"PUBLISH":
            end.write(encode(self._publish(request[1], request[2])))
            return
        answer = self.server.answer(request)
        if self.lose_replies and name.startswith(b"EVAL"):
            self.lose_replies -= 1
            self._network.cut([end])
        else:
            end.write(answer)

    def _publish(self, channel: bytes, text: bytes) -> int:
        listening = [end for end in self._subscribed.get(channel, ()) if not end.is_closing()]
        for end in listening:
            end.write(push(b"message", channel, text))
        return len(listening)

    def _go_on(self) -> None:
        if self.paused_until - self._clock.passed < TICK:  # a timer may be due a moment early
            self.paused_until = 0.0
        waiting, self._waiting = self._waiting, []
        for end, request in waiting:
            self.received(end, request)

    def cut_all(self) -> None:
        """Cut every connection."""
        self._network.cut([end for end in list(self._network.ends) if isinstance(end.protocol, _Connection)])

    def copied(self) -> Any:
        """Its data at this moment."""
        keys = self.server.model.keys
        return copy.deepcopy((keys.values, keys.ends))

    def restart(self, data: Any = None) -> None:
        """Another process of the server, with its own data or an older copy of them."""
        self._runs += 1
        self.cut_all()
        self._waiting.clear()
        self.server.run_id = f"run-{self._runs}"
        self.server.scripts.forget()
        if data is not None:
            keys = self.server.model.keys
            keys.values, keys.ends = data
