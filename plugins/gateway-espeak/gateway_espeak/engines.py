"""The engine's processes, each at one job at a time, and the bounded queue before them.

::

    engines = Engines("gateway_espeak.worker", processes=2, queue=32)
    await engines.start()
    async with engines.lend() as engine:
        engine.ask(job)
        while (piece := await engine.piece()) is not None: ...

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

from gateway.errors import UpstreamOverloaded, UpstreamTruncated, UpstreamUnreachable

from .frames import HEADER, Kind, frame

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
                stdin=theirs,
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # a Ctrl-C is the gateway's, which drains first
            )
        engine = cls(process, *await asyncio.open_connection(sock=ours))
        try:
            async with asyncio.timeout(START_WITHIN):
                _, engine.hello = await engine._frame()
        except BaseException:
            await engine.end()
            raise
        engine.idle = True
        return engine

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended by itself."""
        return self._process.returncode is not None

    def ask(self, job: bytes) -> None:
        """Give it a job."""
        self.idle = self._begun = False
        self._writer.write(frame(Kind.JOB, job))

    async def piece(self) -> bytes | None:
        """The next piece of the answer; None after the last."""
        kind, payload = await self._frame()
        self.idle = kind == Kind.END
        self._begun = True
        return None if self.idle else payload

    async def end(self) -> None:
        """End the process, whatever it does."""
        self.idle = False
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    async def _frame(self) -> tuple[int, bytes]:
        try:
            kind, length = HEADER.unpack(await self._reader.readexactly(HEADER.size))
            return kind, await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            cut = UpstreamTruncated if self._begun else UpstreamUnreachable
            raise cut(detail="the engine's process ended; its words are on the gateway's standard error") from None


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
        except (UpstreamUnreachable, TimeoutError):
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
    async def lend(self) -> AsyncIterator[Engine]:
        """An engine of one's own for one job; UpstreamOverloaded when too many wait already."""
        engine = await self._place()
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

    async def _place(self) -> Engine | None:
        if self._places.empty() and self._waiting >= self._queue:
            raise UpstreamOverloaded(detail=f"{self._waiting} calls wait for an engine")
        self._waiting += 1
        try:
            return await self._places.get()
        finally:
            self._waiting -= 1
