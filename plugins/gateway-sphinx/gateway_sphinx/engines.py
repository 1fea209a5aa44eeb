"""The engine's processes, each at one job at a time, and the bounded queue before them.

::

    engines = Engines("package.worker", processes=2, queue=32)
    await engines.start()
    async with engines.lend(within=60.0) as engine:
        await engine.tell(Kind.JOB, job)
        while not engine.idle:
            kind, payload = await engine.hear(within=5.0)

Sharp edge: a job that is left before its end takes its process with it, for a C library cannot be asked to stop; the
next job starts another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator

from gateway.errors import UpstreamOverloaded, UpstreamTimeout, UpstreamTruncated, UpstreamUnreachable

from .frames import ENDS, HEADER, Kind, frame

START_WITHIN = 30.0  # seconds


class Engine:
    """One process."""

    def __init__(self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self.hello = b""
        self.idle = False  # whether it waits for a job
        self._begun = False  # whether some of the answer came

    @classmethod
    async def start(cls, *command: str) -> Engine:
        """Start it and wait until it is ready."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", *command),
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is the gateway's, which drains first
            )
        engine = cls(process, *await asyncio.open_connection(sock=ours))
        try:
            _, engine.hello = await engine.hear(within=START_WITHIN)
        except BaseException:
            await engine.end()
            raise
        return engine

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended by itself."""
        return self._process.returncode is not None

    async def tell(self, kind: Kind, payload: bytes = b"") -> None:
        """Send it a frame, as fast as it reads."""
        self.idle = self._begun = False
        try:
            self._writer.write(frame(kind, payload))
            await self._writer.drain()
        except ConnectionError:
            raise self._fallen() from None

    async def hear(self, *, within: float) -> tuple[int, bytes]:
        """The next frame of the answer, after the last of which it is idle; UpstreamTimeout after so many seconds."""
        try:
            async with asyncio.timeout(within):
                head = await self._reader.readexactly(HEADER.size)
                kind, length = HEADER.unpack(head)
                payload = await self._reader.readexactly(length)
        except TimeoutError:
            raise UpstreamTimeout() from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise self._fallen() from None
        self.idle, self._begun = kind in ENDS, True
        return kind, payload

    async def end(self) -> None:
        """End the process, whatever it does."""
        self.idle = False
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def _fallen(self) -> UpstreamTruncated | UpstreamUnreachable:
        kind = UpstreamTruncated if self._begun else UpstreamUnreachable
        return kind(detail="the engine's process ended; its words are on the gateway's standard error")


class Engines:
    """So many engines, and so many calls that may wait for one."""

    def __init__(self, *command: str, processes: int, queue: int) -> None:
        self._command = command
        self._places: asyncio.LifoQueue[Engine | None] = asyncio.LifoQueue()  # None: one is to be started there
        self._number, self._queue = processes, queue
        self._waiting = 0

    async def start(self) -> bytes:
        """Start all; how they introduce themselves. OSError when they do not start."""
        hello = b""
        try:
            for _ in range(self._number):
                engine = await Engine.start(*self._command)
                self._places.put_nowait(engine)
                hello = engine.hello
        except (UpstreamUnreachable, UpstreamTimeout):
            await self.close()
            raise OSError("the engine does not start; its own words are above") from None
        return hello

    async def close(self) -> None:
        """End all; no job is under way any more."""
        while not self._places.empty():
            engine = self._places.get_nowait()
            if engine is not None:
                await engine.end()

    @contextlib.asynccontextmanager
    async def lend(self, *, within: float) -> AsyncIterator[Engine]:
        """An engine of one's own for one job; UpstreamOverloaded when too many wait, or it takes too many seconds."""
        engine = await self._place(within)
        try:
            if engine is None or engine.is_gone:
                engine = await Engine.start(*self._command)
            yield engine
        finally:
            place = engine if engine is not None and engine.idle else None
            try:
                if engine is not None and place is None:
                    await engine.end()
            finally:
                self._places.put_nowait(place)

    async def _place(self, within: float) -> Engine | None:
        if self._places.empty() and self._waiting >= self._queue:
            raise UpstreamOverloaded(detail=f"{self._waiting} calls wait for an engine")
        self._waiting += 1
        try:
            async with asyncio.timeout(within):
                return await self._places.get()
        except TimeoutError:
            raise UpstreamOverloaded(detail=f"no engine became free within {within:g} s") from None
        finally:
            self._waiting -= 1
