"""Engine processes for plugins that run a C library: each process has one job at a time, behind a bounded queue.

::

    engines = Engines("package.worker", processes=2, queue=32, ends={Kind.END})
    await engines.start()
    async with engines.acquire(within=60.0) as engine:
        await engine.send(Kind.JOB, job)
        while not engine.idle:
            kind, payload = await engine.receive(within=5.0)

`python -m package.worker` gets a socket as its standard input. It sends and receives `engine_frames` there, and sends
READY first. Sharp edge: a caller that leaves before the last frame of a job ends the process, because a C library
cannot be asked to stop. The next job starts a new process.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Set

from gateway.errors import UpstreamOverloaded, UpstreamTimeout, UpstreamTruncated, UpstreamUnreachable
from gateway.plugins.engine_frames import HEADER, READY, frame

START_WITHIN = 30.0  # seconds


class Engine:
    """One process; `ends` are the kinds of frame that end a job."""

    def __init__(
        self, process: Process, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, ends: Set[int]
    ) -> None:
        self._process, self._reader, self._writer = process, reader, writer
        self._ends = ends
        self.ready_payload = b""  # the payload of READY
        self.idle = False  # whether it waits for a job
        self._answered = False  # whether a part of the answer came

    @classmethod
    async def start(cls, *command: str, ends: Set[int]) -> Engine:
        """Run `python -m COMMAND` and wait until it is ready."""
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", *command),
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C goes to the gateway alone, which drains first
            )
        engine = cls(process, *await asyncio.open_connection(sock=ours), ends=ends)
        try:
            _, engine.ready_payload = await engine.receive(within=START_WITHIN)
        except BaseException:
            await engine.stop()
            raise
        return engine

    @property
    def is_gone(self) -> bool:
        """Whether its process has ended by itself."""
        return self._process.returncode is not None

    async def send(self, kind: int, payload: bytes = b"") -> None:
        """Send a frame, as fast as the process reads; UpstreamUnreachable if it has ended."""
        self.idle = self._answered = False
        try:
            self._writer.write(frame(kind, payload))
            await self._writer.drain()
        except ConnectionError:
            raise self._ended() from None

    async def receive(self, *, within: float) -> tuple[int, bytes]:
        """Kind and payload of the next frame; the engine is idle after the last one of a job.

        UpstreamTimeout after `within` seconds. If the process ends: UpstreamUnreachable, or UpstreamTruncated after a
        part of the answer.
        """
        try:
            async with asyncio.timeout(within):
                head = await self._reader.readexactly(HEADER.size)
                kind, length = HEADER.unpack(head)
                payload = await self._reader.readexactly(length)
        except TimeoutError:
            raise UpstreamTimeout() from None
        except (asyncio.IncompleteReadError, ConnectionError):
            raise self._ended() from None
        self.idle, self._answered = kind == READY or kind in self._ends, True
        return kind, payload

    async def stop(self) -> None:
        """Kill the process."""
        self.idle = False
        self._writer.close()
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def _ended(self) -> UpstreamTruncated | UpstreamUnreachable:
        kind = UpstreamTruncated if self._answered else UpstreamUnreachable
        return kind(detail="the engine's process ended; its messages are on the gateway's standard error")


class Engines:
    """A pool of `processes` engines; at most `queue` calls wait for one."""

    def __init__(self, *command: str, processes: int, queue: int, ends: Set[int]) -> None:
        self._command, self._ends = command, ends
        self._slots: asyncio.LifoQueue[Engine | None] = asyncio.LifoQueue()  # None: the next job starts a process
        self._number, self._queue = processes, queue
        self._waiting = 0

    async def start(self) -> bytes:
        """Start all processes, and return the payload of READY; OSError if one does not start."""
        payload = b""
        try:
            for _ in range(self._number):
                engine = await self._start_one()
                self._slots.put_nowait(engine)
                payload = engine.ready_payload
        except (UpstreamUnreachable, UpstreamTimeout):
            await self.close()
            raise OSError("the engine does not start; its own messages are above") from None
        return payload

    async def close(self) -> None:
        """Stop all processes; no job may be running."""
        while not self._slots.empty():
            engine = self._slots.get_nowait()
            if engine is not None:
                await engine.stop()

    @contextlib.asynccontextmanager
    async def acquire(self, *, within: float) -> AsyncIterator[Engine]:
        """An engine for one job; UpstreamOverloaded if the queue is full or none is free within so many seconds."""
        engine = await self._free_slot(within)
        try:
            if engine is None or engine.is_gone:
                engine = await self._start_one()
            yield engine
        finally:
            kept = engine if engine is not None and engine.idle else None
            try:
                if engine is not None and kept is None:
                    await engine.stop()
            finally:
                self._slots.put_nowait(kept)

    async def _start_one(self) -> Engine:
        return await Engine.start(*self._command, ends=self._ends)

    async def _free_slot(self, within: float) -> Engine | None:
        if self._slots.empty() and self._waiting >= self._queue:
            raise UpstreamOverloaded(detail=f"{self._waiting} calls wait for an engine")
        self._waiting += 1
        try:
            async with asyncio.timeout(within):
                return await self._slots.get()
        except TimeoutError:
            raise UpstreamOverloaded(detail=f"no engine became free within {within:g} s") from None
        finally:
            self._waiting -= 1
