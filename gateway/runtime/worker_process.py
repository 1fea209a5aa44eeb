"""The supervisor's side of one worker: a listening socket, and the processes that serve on it one after the other.

`keep_alive()` starts a process, and the next one when that ends or begins to drain, with a growing pause if they end
early. The socket stays open here, so queued connections wait for the next process and do not fail. A process that
serves reports every second. Without a report for `UNREADY_AFTER` seconds it does not count as ready. After
`KILLED_AFTER` it is killed and replaced, and its calls are settled like those of any dead worker. Sharp edge: when a
process dies before it was ready, the socket is closed with its queued connections, so that clients reach other workers.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

import msgspec
from msgspec import structs

from gateway.log import gateway_log
from gateway.runtime.accept_queue import AcceptQueues
from gateway.runtime.ipc import REPORT_EVERY, Briefing, Channel, Message, WorkerSpec
from gateway.runtime.questions import Questions
from gateway.runtime.sockets import bind_again, is_shared

MIN_PAUSE, MAX_PAUSE = 0.05, 5.0  # seconds before a dead worker is started again
STAYED_UP = 10.0  # seconds after which a worker counts as stable
REPORT_WITHIN = 0.25  # seconds to wait for a worker's counts at a scrape
UNREADY_AFTER, KILLED_AFTER = 10.0, 30.0  # seconds without a report of a worker that was ready
NOT_STARTED = 127  # exit code of a process that could not be started, as in shells
READ_REST_WITHIN = 0.25  # seconds to read the last messages of a dead worker

Counted = Callable[["Life", bytes], None]
#: Called with the worker's number and the fingerprints of the configuration that it could not use, and of its own.
Refused = Callable[[int, bytes, bytes], None]
#: Called when a process serves with a configuration that it has not served with before.
Using = Callable[[], None]


class Life:
    """One process of a worker, from its start to its end."""

    def __init__(
        self,
        number: int,
        on_counts: Counted,
        on_reload_refused: Refused = lambda number, refused, uses: None,
        on_using: Using = lambda: None,
    ) -> None:
        self.number = number
        self.ready = False  # it serves
        self.uses = b""  # fingerprint of its configuration
        self.reaches_upstreams = True  # at least one target works, or none was tried
        self.known = asyncio.Event()  # it is ready or has failed
        self.leaving = asyncio.Event()  # it drains or has ended
        self.ended = asyncio.Event()
        self.code: int | None = None
        self.silence = 0.0  # seconds without a message, of those in which this process ran
        self._on_counts = on_counts
        self._on_reload_refused = on_reload_refused
        self._on_using = on_using
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._silent = asyncio.Event()  # the channel is closed
        self._asked = 0
        self._reports: dict[bytes, asyncio.Event] = {}
        self.questions = Questions(self.send)

    @property
    def source(self) -> str:
        """Its name in the totals."""
        return f"worker-{self.number}-{self._process.pid if self._process else 0}"

    @property
    def serving(self) -> bool:
        """Whether it takes new requests."""
        return self.ready and not self.leaving.is_set() and self.silence < UNREADY_AFTER

    def check(self, seconds: float) -> None:
        """Called every `seconds` seconds: notice a process whose event loop does not run, and kill it in the end."""
        if not self.ready or self.ended.is_set():
            return
        before, self.silence = self.silence, self.silence + seconds
        if before < UNREADY_AFTER <= self.silence:
            gateway_log.error("worker %d has not reported for %.0f s; it is not ready", self.number, self.silence)
        if before < KILLED_AFTER <= self.silence:
            gateway_log.error("worker %d has not reported for %.0f s; killing it", self.number, self.silence)
            self.signal(signal.SIGKILL)

    async def start(self, spec: WorkerSpec, listener: socket.socket, brief: Callable[[], Briefing]) -> None:
        """Start the process; OSError if the system refuses."""
        ours, theirs = socket.socketpair()
        with theirs:
            fds = (listener.fileno(), theirs.fileno())
            spec = structs.replace(spec, listen_fd=fds[0], channel_fd=fds[1])
            self._channel = await Channel.open(ours, self._receive, self._silent.set)
            try:
                self._process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",  # a folder `gateway` where it was started is not this program
                    "-m",
                    "gateway.runtime.worker",
                    msgspec.json.encode(spec).decode(),
                    pass_fds=fds,
                    start_new_session=True,  # Ctrl-C reaches only the supervisor, which drains the workers
                )
            except BaseException:
                self._channel.close()  # a process that was started then ends without a supervisor
                raise
        # Over the channel: a command line can be read by every user of the machine.
        briefing = brief()  # made after the start, so that it includes a reload during the start
        self.uses = briefing.configuration.fingerprint
        self.send("briefing", msgspec.msgpack.encode(briefing))

    async def wait(self) -> None:
        """Wait until the process has ended and its last messages were read."""
        assert self._process is not None
        assert self._channel is not None
        self.code = await self._process.wait()
        self.known.set()
        self.leaving.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(READ_REST_WITHIN):
                await self._silent.wait()
        self._channel.close()
        for report in self._reports.values():
            report.set()
        self.questions.close()
        self.ended.set()

    def send(self, name: str, payload: bytes = b"") -> None:
        """Send a message to the process."""
        if self._channel is not None:
            self._channel.send(name, payload)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, if it runs."""
        if self._process is not None and self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.send_signal(number)

    async def report(self) -> None:
        """Request its metrics now; waits at most `REPORT_WITHIN` seconds."""
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
        if self.silence >= UNREADY_AFTER:
            gateway_log.warning("worker %d reports again", self.number)
        self.silence = 0.0
        if message.name == "counts":
            self._on_counts(self, message.payload)
        elif message.name == "reported" and message.payload in self._reports:
            self._reports[message.payload].set()
        elif message.name == "ready":
            self.ready = True
            self.known.set()
            self._on_using()
        elif message.name == "reloaded":
            self.uses = message.payload
            self._on_using()
        elif message.name == "leaving":
            self.leaving.set()
        elif message.name == "upstreams":
            self.reaches_upstreams = message.payload == b"1"
        elif message.name == "reload refused":
            self._on_reload_refused(self.number, message.payload, self.uses)
        elif message.name == "answer":
            self.questions.receive(message.payload)


@dataclass(eq=False, repr=False)
class WorkerProcess:
    """One worker: its socket, and the processes that serve on it."""

    spec: WorkerSpec
    listener: socket.socket
    _: KW_ONLY
    brief: Callable[[], Briefing]
    on_counts: Counted
    on_end: Callable[[Life], None]
    on_reload_refused: Refused = lambda number, refused, uses: None
    on_using: Using = lambda: None
    lives: list[Life] = field(default_factory=list)  # older processes that still drain, and last the one that serves
    _stopping: bool = False
    _first: asyncio.Future[bool] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def ready(self) -> bool:
        """Whether it takes new requests."""
        return bool(self.lives) and self.lives[-1].serving

    @property
    def uses(self) -> bytes | None:
        """Fingerprint of the configuration of its process; None while none has become ready."""
        life = self.lives[-1] if self.lives else None
        return life.uses if life is not None and life.ready and not life.leaving.is_set() else None

    @property
    def reaches_upstreams(self) -> bool:
        """Whether at least one target of its process works, or none was tried."""
        return bool(self.lives) and self.lives[-1].reaches_upstreams

    def stopping(self) -> bool:
        """Whether it is to stop."""
        return self._stopping

    async def first_try(self) -> bool:
        """Whether the first process became ready; waits until that is known."""
        return await asyncio.shield(self._first)

    async def keep_alive(self) -> None:
        """Keep a process serving until `stop`."""
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
            if not life.ready and is_shared(self.listener):
                self.listener = bind_again(self.listener)
            await asyncio.sleep(pause)

    async def _live(self) -> Life:
        """Run one process until it takes no more requests."""
        life = Life(self.spec.number, self.on_counts, self.on_reload_refused, self.on_using)
        try:
            await life.start(self.spec, self.listener, self.brief)
        except OSError as error:
            gateway_log.error("the system does not let worker %d start: %s", self.spec.number, error)
            life.code = NOT_STARTED
        else:
            self.lives.append(life)
            self._watch(life)
            if self.stopping():  # a stop during the start of the process
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
        self.on_end(life)

    def check(self, seconds: float) -> None:
        """Notice processes that do not report; called every `seconds` seconds."""
        for life in self.lives:
            life.check(seconds)

    def send(self, name: str, payload: bytes = b"") -> None:
        """Send a message to every process of this worker."""
        for life in self.lives:
            life.send(name, payload)

    async def report(self) -> None:
        """Request the metrics of every process of this worker now."""
        await asyncio.gather(*(life.report() for life in self.lives))

    def stop_accepting(self) -> None:
        """Close the listening socket here, and start no more processes."""
        self._stopping = True
        self.listener.close()

    async def stop(self, within: float) -> None:
        """End every process: with SIGTERM, and after `within` seconds with SIGKILL."""
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


async def watch_workers(workers: Sequence[WorkerProcess], queues: AcceptQueues) -> None:
    """Find workers that do not report, and connections that the system dropped, until cancelled.

    A pause of this process is not counted as theirs.
    """
    before = time.monotonic()
    while True:
        await asyncio.sleep(REPORT_EVERY)
        now = time.monotonic()
        for worker in workers:
            worker.check(min(now - before, 2 * REPORT_EVERY))
        queues.look(worker.listener for worker in workers)
        before = now


def _ending(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
