"""The supervisor's view of one worker: its process, its channel, and its return from the dead.

`keep_alive()` starts the worker and starts it again whenever it ends, with a growing pause if it does not stay up. Its
listening socket stays open here all the while.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import time
from collections.abc import Callable

import msgspec
from msgspec import structs

from gateway.channel import Channel, Message
from gateway.log import gateway_log
from gateway.worker import WorkerSpec

MIN_PAUSE, MAX_PAUSE = 0.05, 5.0  # seconds before a dead worker is started again
STAYED_UP = 10.0  # seconds after which a worker counts as sound
REPORT_WITHIN = 0.25  # seconds to wait for a worker's counts at a scrape


class WorkerProcess:
    """One worker slot."""

    def __init__(
        self,
        spec: WorkerSpec,
        listener: socket.socket,
        pepper: bytes,
        *,
        on_counts: Callable[[WorkerProcess, bytes], None],
        on_death: Callable[[WorkerProcess], None],
    ) -> None:
        self.spec = spec
        self.ready = False
        self.failed = False  # ended before it ever was ready
        self._listener = listener
        self._pepper = pepper
        self._on_counts = on_counts
        self._on_death = on_death
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._stopping = False
        self._first = asyncio.Event()
        self._reported = asyncio.Event()

    @property
    def source(self) -> str:
        """This worker's name in the totals."""
        return f"worker-{self.spec.number}"

    @property
    def pid(self) -> int | None:
        """The process that serves now."""
        return self._process.pid if self._process is not None and self._process.returncode is None else None

    def stopping(self) -> bool:
        """Whether it has been told to end."""
        return self._stopping

    async def first_ready(self) -> None:
        """Until it has served for the first time, or failed to."""
        await self._first.wait()

    async def keep_alive(self) -> None:
        """Start it, and start it again, until told to stop."""
        pause = MIN_PAUSE
        while not self.stopping():
            started = time.monotonic()
            code = await self._live()
            if self.stopping():
                return
            self.failed = not self._first.is_set()
            self._first.set()
            pause = MIN_PAUSE if time.monotonic() - started > STAYED_UP else min(pause * 2, MAX_PAUSE)
            gateway_log.error("worker %d ended with %s; starting it again", self.spec.number, _ending(code))
            await asyncio.sleep(pause)

    async def _live(self) -> int:
        """One life, from start to exit code."""
        ours, theirs = socket.socketpair()
        theirs.set_inheritable(True)
        self._listener.set_inheritable(True)
        spec = structs.replace(self.spec, listen_fd=self._listener.fileno(), channel_fd=theirs.fileno())
        self._channel = await Channel.open(ours, self._receive, lambda: None)
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "gateway.worker",
            msgspec.json.encode(spec).decode(),
            pass_fds=[self._listener.fileno(), theirs.fileno()],
        )
        theirs.close()
        self.send("pepper", self._pepper)  # over the channel: a command line can be read by every user of the machine
        code = await self._process.wait()
        self.ready = False
        self._reported.set()
        self._channel.close()
        self._on_death(self)
        return code

    def _receive(self, message: Message) -> None:
        if message.name == "ready":
            self.ready = True
            self._first.set()
        elif message.name == "counts":
            self._on_counts(self, message.payload)
        elif message.name == "reported":
            self._reported.set()

    def send(self, name: str, payload: bytes = b"") -> None:
        """Tell the worker something."""
        if self._channel is not None:
            self._channel.send(name, payload)

    async def report(self) -> None:
        """Have it send its counts now; a worker that is busy or gone is not waited for long."""
        if not self.ready:
            return
        self._reported.clear()
        self.send("report")
        try:
            async with asyncio.timeout(REPORT_WITHIN):
                await self._reported.wait()
        except TimeoutError:
            return

    def stop_accepting(self) -> None:
        """Close our hold on its listening socket."""
        self._stopping = True
        self._listener.close()

    async def stop(self, within: float) -> None:
        """End it: politely, and after `within` seconds by force."""
        self.stop_accepting()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"
