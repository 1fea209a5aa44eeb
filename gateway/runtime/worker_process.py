"""The supervisor's view of one worker: a slot with a listening socket, and the processes that serve on it in turn.

`keep_alive()` starts a process, and the next one whenever that ends or begins to drain, with a growing pause if they do
not stay up. The socket stays open here all the while, so connections that queue on it wait for the successor instead of
failing. Sharp edge: only a process that dies before it ever was ready loses them, because then its siblings should get
the callers that would wait in vain.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable

import msgspec
from msgspec import structs

from gateway.log import gateway_log
from gateway.runtime.ipc import Channel, Message
from gateway.runtime.sockets import bind_again, is_shared
from gateway.runtime.worker import Briefing, WorkerSpec

MIN_PAUSE, MAX_PAUSE = 0.05, 5.0  # seconds before a dead worker is started again
STAYED_UP = 10.0  # seconds after which a worker counts as sound
REPORT_WITHIN = 0.25  # seconds to wait for a worker's counts at a scrape
NOT_STARTED = 127  # exit code of a process that never was, as shells have it
LAST_WORDS = 0.25  # seconds to read what a dead worker still had sent

Counted = Callable[["Life", bytes], None]


class Life:
    """One process in a slot, from its start to its end."""

    def __init__(self, number: int, on_counts: Counted) -> None:
        self.number = number
        self.ready = False  # it has begun to serve
        self.known = asyncio.Event()  # it is ready, or never will be
        self.leaving = asyncio.Event()  # it drains, or has ended
        self.ended = asyncio.Event()
        self.code: int | None = None
        self._on_counts = on_counts
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._silent = asyncio.Event()  # the channel is closed
        self._asked = 0
        self._reports: dict[bytes, asyncio.Event] = {}

    @property
    def source(self) -> str:
        """Its name in the totals."""
        return f"worker-{self.number}-{self._process.pid if self._process else 0}"

    @property
    def serving(self) -> bool:
        """Whether it takes new requests."""
        return self.ready and not self.leaving.is_set()

    async def start(self, spec: WorkerSpec, listener: socket.socket, brief: Callable[[], Briefing]) -> None:
        """Start the process; OSError when the system has none to give."""
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (listener.fileno(), theirs.fileno())
            spec = structs.replace(spec, listen_fd=fds[0], channel_fd=fds[1])
            self._channel = await Channel.open(ours, self._receive, self._silent.set)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "gateway.runtime.worker",
                    msgspec.json.encode(spec).decode(),
                    pass_fds=fds,
                    start_new_session=True,  # Ctrl-C at a terminal is for the supervisor, which lets workers drain
                )
            except BaseException:
                self._channel.close()  # a process that was started nevertheless ends for want of a supervisor
                raise
        # Over the channel: a command line can be read by every user of the machine.
        # Asked for only now: what a reload changed while the process was being made must not pass it by.
        self.send("briefing", msgspec.msgpack.encode(brief()))

    async def wait(self) -> None:
        """Until the process has ended and all it had sent is read."""
        assert self._process is not None
        assert self._channel is not None
        self.code = await self._process.wait()
        self.known.set()
        self.leaving.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS):
                await self._silent.wait()
        self._channel.close()
        for report in self._reports.values():
            report.set()
        self.ended.set()

    def send(self, name: str, payload: bytes = b"") -> None:
        """Tell the process something."""
        if self._channel is not None:
            self._channel.send(name, payload)

    def signal(self, number: signal.Signals) -> None:
        """Signal the process, if it lives."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def report(self) -> None:
        """Have it send its counts now; one that is busy or gone is not waited for long."""
        if not self.ready or self.ended.is_set():
            return
        self._asked += 1
        ticket = b"%d" % self._asked
        answered = self._reports[ticket] = asyncio.Event()
        self.send("report", ticket)
        try:
            async with asyncio.timeout(REPORT_WITHIN):
                await answered.wait()
        except TimeoutError:
            return
        finally:
            del self._reports[ticket]

    def _receive(self, message: Message) -> None:
        if message.name == "counts":
            self._on_counts(self, message.payload)
        elif message.name == "reported" and message.payload in self._reports:
            self._reports[message.payload].set()
        elif message.name == "ready":
            self.ready = True
            self.known.set()
        elif message.name == "leaving":
            self.leaving.set()


class WorkerProcess:
    """One slot."""

    def __init__(
        self,
        spec: WorkerSpec,
        listener: socket.socket,
        *,
        brief: Callable[[], Briefing],
        on_counts: Counted,
        on_end: Callable[[Life], None],
    ) -> None:
        self.spec = spec
        self.lives: list[Life] = []  # the one that serves, last, and those before it that still drain
        self._listener = listener
        self._brief = brief
        self._on_counts = on_counts
        self._on_end = on_end
        self._stopping = False
        self._first: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def ready(self) -> bool:
        """Whether it takes new requests."""
        return bool(self.lives) and self.lives[-1].serving

    def stopping(self) -> bool:
        """Whether it has been told to end."""
        return self._stopping

    async def first_try(self) -> bool:
        """Whether the first process became ready; waits until that is known."""
        return await asyncio.shield(self._first)

    async def keep_alive(self) -> None:
        """Have a process serve, until told to stop."""
        pause = MIN_PAUSE
        while not self.stopping():
            started = time.monotonic()
            life = await self._live()
            if self.stopping():
                return
            if life.code is None:
                gateway_log.info("worker %d drains; another takes its place", self.spec.number)
                continue
            pause = MIN_PAUSE if time.monotonic() - started > STAYED_UP else min(pause * 2, MAX_PAUSE)
            gateway_log.error("worker %d %s; another starts in %.1f s", self.spec.number, _ending(life.code), pause)
            if not life.ready and is_shared(self._listener):
                self._listener = bind_again(self._listener)
            await asyncio.sleep(pause)

    async def _live(self) -> Life:
        """One life, until it takes no more requests."""
        life = Life(self.spec.number, self._on_counts)
        try:
            await life.start(self.spec, self._listener, self._brief)
        except OSError as error:
            gateway_log.error("the system does not let worker %d start: %s", self.spec.number, error)
            life.code = NOT_STARTED
        else:
            self.lives.append(life)
            self._watch(life)
            if self.stopping():  # told so while the process was being made
                life.signal(signal.SIGTERM)
            await life.known.wait()
        if not self._first.done():
            self._first.set_result(life.ready)
        if life.code is None:
            await life.leaving.wait()
        return life

    def _watch(self, life: Life) -> None:
        task = asyncio.get_running_loop().create_task(self._until_end(life))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _until_end(self, life: Life) -> None:
        await life.wait()
        self.lives.remove(life)
        self._on_end(life)

    def send(self, name: str, payload: bytes = b"") -> None:
        """Tell every process of this slot something."""
        for life in self.lives:
            life.send(name, payload)

    async def report(self) -> None:
        """Have every process of this slot send its counts now."""
        await asyncio.gather(*(life.report() for life in self.lives))

    def stop_accepting(self) -> None:
        """Close our hold on the listening socket, and start no process any more."""
        self._stopping = True
        self._listener.close()

    async def stop(self, within: float) -> None:
        """End every process: politely, and after `within` seconds by force."""
        self.stop_accepting()
        lives = list(self.lives)
        for life in lives:
            life.signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                await asyncio.gather(*(life.ended.wait() for life in lives))
        except TimeoutError:
            for life in lives:
                if not life.ended.is_set():
                    gateway_log.error("worker %d does not end; killing it", self.spec.number)
                life.signal(signal.SIGKILL)
            await asyncio.gather(*(life.ended.wait() for life in lives))


def _ending(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
