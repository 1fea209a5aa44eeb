"""The generators of the hostile account, all at once, against one port.

``python -m benchmarks.hostile.attacks PORT KEY REVOKED SCALE [NAME …]`` runs until SIGTERM, and then prints what it has
done: per attack the number of requests, and of answers by status. SCALE multiplies the rates; NAMEs are the attacks to
run, by default all.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import resource
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

from benchmarks.hostile import bodies

WITHIN = 30.0  # seconds for one request
IDLE = 1500  # connections that send nothing, or only a part of a head
UNFINISHED = 40  # bodies at a time
DRIP = 2048  # bytes per second of such a body


class Attacker:
    """Every attack on one port."""

    def __init__(self, port: int, key: str, revoked: str, scale: float, only: Collection[str] = ()) -> None:
        self._port, self._key, self._revoked, self._scale, self._only = port, key, revoked, scale, only
        self.done: dict[str, Counter[str]] = {}

    async def run(self) -> None:
        """All of them, until cancelled."""
        key, revoked = self._key, self._revoked
        paced: list[tuple[str, float, bytes]] = [  # name, requests a second, request
            ("many values", 2, bodies.many_values(key)),
            ("large", 0.5, bodies.large_valid(key)),
            ("many objects", 0.5, bodies.many_objects(key)),
            ("small objects", 0.5, bodies.small_objects(key)),
            ("medium", 2, bodies.medium(key)),
            ("gzip bomb, revoked key", 10, bodies.bomb(revoked)),
            ("gzip bomb", 2, bodies.bomb(key)),
            ("boundaries", 1, bodies.boundaries(key)),
            ("boundaries, revoked key", 1, bodies.boundaries(revoked)),
            ("repeated keys", 20, bodies.repeated_keys(key)),
            ("addresses", 20, bodies.addresses(key)),
            *((name, 2, bodies.chat(name, key)) for name in ("trailers", "after-gzip", "bomb", "error")),
            ("long-line", 1, bodies.chat("long-line", key, stream=True)),
        ]
        async with asyncio.TaskGroup() as group:
            for name, rate, request in filter(self._is_wanted, paced):
                group.create_task(self._paced(name, rate * self._scale, request))
            repeated: list[tuple[str, int, Callable[[], Awaitable[str]]]] = [
                (model, 10, partial(self._leave_early, model)) for model in ("sleeper", "deaf")
            ]
            repeated.append(("unfinished", UNFINISHED, self._unfinished))
            repeated += [("idle", 1, partial(self._idle, number)) for number in range(IDLE)]
            for name, times, attack in filter(self._is_wanted, repeated):
                for _ in range(times):
                    group.create_task(self._repeat(name, attack))
            await asyncio.Event().wait()

    def _is_wanted(self, attack: tuple[Any, ...]) -> bool:
        return not self._only or attack[0] in self._only

    async def _paced(self, name: str, rate: float, request: bytes) -> None:
        """Send at a rate, whether answers come or not, but at most 20 at a time."""
        slots = asyncio.Semaphore(20)
        loop = asyncio.get_running_loop()
        due = loop.time()
        async with asyncio.TaskGroup() as group:
            while True:
                await slots.acquire()
                group.create_task(self._send(name, request, slots))
                due = max(due + 1 / rate, loop.time() - 1.0)
                await asyncio.sleep(max(0.0, due - loop.time()))

    async def _send(self, name: str, request: bytes, slots: asyncio.Semaphore) -> None:
        try:
            self._count(name, await self._ask(request))
        finally:
            slots.release()

    async def _repeat(self, name: str, attack: Callable[[], Awaitable[str]]) -> None:
        while True:
            self._count(name, await attack())
            await asyncio.sleep(0.5)

    def _count(self, name: str, result: str) -> None:
        self.done.setdefault(name, Counter())[result] += 1

    async def _ask(self, request: bytes) -> str:
        """The status of the answer, or how it failed."""
        writer = None
        try:
            async with asyncio.timeout(WITHIN):
                reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=2**20)
                with contextlib.suppress(ConnectionError):
                    for start in range(0, len(request), 65_536):
                        writer.write(request[start : start + 65_536])
                        await writer.drain()
                line = await reader.readline()
                return line[9:12].decode() or "closed"
        except TimeoutError:
            return "timeout"
        except OSError:
            return "reset"
        finally:
            if writer is not None:
                writer.transport.abort()

    async def _leave_early(self, model: str) -> str:
        """Begin a stream, and leave it after a second."""
        return await self._hold(bodies.chat(model, self._key, stream=True), 1.0)

    async def _unfinished(self) -> str:
        """A body that is announced, begun, and sent slowly."""
        request = bodies.request(b"", key=self._key).replace(b"Content-Length: 0", b"Content-Length: 20000000")
        return await self._hold(request + b"{" + b" " * 200_000, 60.0, drip=b" " * DRIP)

    async def _idle(self, number: int) -> str:
        """A connection that sends nothing, or begins a head."""
        begun = (b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-A: ", b"\r\n")[number % 3]
        return await self._hold(begun, 20.0, drip=b"y" if number % 3 == 1 else b"")

    async def _hold(self, request: bytes, seconds: float, *, drip: bytes = b"") -> str:
        """Send, and keep the connection for so long or until it is closed."""
        writer = None
        ends = asyncio.get_running_loop().time() + seconds
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
            if request:
                writer.write(request)
            while asyncio.get_running_loop().time() < ends:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(1.0):
                        if not await reader.read(65_536):
                            return "closed"
                if drip:
                    writer.write(drip)
            return "held"
        except OSError:
            return "reset"
        finally:
            if writer is not None:
                writer.transport.abort()


async def main(port: int, key: str, revoked: str, scale: float, *only: str) -> None:
    """Attack until SIGTERM."""
    attacker = Attacker(port, key, revoked, scale, only)
    task = asyncio.create_task(attacker.run())
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
    print(json.dumps(attacker.done))


if __name__ == "__main__":
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 65_536), hard))
    asyncio.run(main(int(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4]), *sys.argv[5:]))
