"""The supervisor's side of a helper (importer, console, batches): one process after the other, each with a channel.

Calls do not depend on helpers: a gateway serves while one of them cannot start.
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

from gateway.accounts.pepper import Peppers
from gateway.config.configuration import Configuration
from gateway.http_server.tls_pair import TlsPair
from gateway.log import gateway_log
from gateway.runtime.ipc import Channel, Message
from gateway.runtime.priority import NICENESS, lower_priority
from gateway.runtime.questions import Questions

MIN_PAUSE, MAX_PAUSE = 0.1, 30.0  # seconds before it is started again
STAYED_UP = 60.0  # seconds after which it counts as stable
END_WITHIN = 10.0  # seconds for its last transaction
SILENT_FOR = 60.0  # seconds without its report, due every second, after which it counts as hung


class HelperBriefing(msgspec.Struct, array_like=True):
    """The first message over a helper's channel."""

    configuration: Configuration
    deployment: str = ""  # of the store; empty before the store was reached for the first time
    socket: str = ""  # of the embedded store
    tls: TlsPair | None = None  # of the console's port
    peppers: Peppers | None = None  # of the runner of batches, whose calls are those of a worker


class HelperProcess:
    """Keeps one process of a helper running: `python -m gateway.runtime.NAME CHANNEL [LISTENER]`."""

    def __init__(
        self,
        name: str,
        brief: Callable[[], HelperBriefing],
        *,
        on_counts: Callable[[str, bytes], None],
        on_end: Callable[[str], None],
        on_message: Callable[[Message], None] = lambda message: None,
        listener: socket.socket | None = None,
    ) -> None:
        self._name = name
        self._brief = brief
        self._on_counts = on_counts  # gets the name of the process and its metrics
        self._on_end = on_end
        self._on_message = on_message  # gets every other message
        self._listener = listener  # a bound socket that each process inherits; connections wait in it meanwhile
        self._process: asyncio.subprocess.Process | None = None
        self._channel: Channel | None = None
        self._reported = asyncio.Event()
        self._has_reported = False  # of the running process
        self._stopping = False
        self.questions = Questions(self.send)

    @property
    def pid(self) -> int:
        """The running process; 0 for none."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    @property
    def is_ready(self) -> bool:
        """Whether its process runs and has reported, so it answers questions."""
        return bool(self.pid) and self._has_reported

    def stopping(self) -> bool:
        """Whether it is to stop."""
        return self._stopping

    def send(self, name: str, payload: bytes = b"") -> None:
        """Send a message to the running process; without one it is dropped."""
        if self._channel is not None:
            self._channel.send(name, payload)

    async def keep_alive(self) -> None:
        """Keep a process running until `stop`."""
        pause = MIN_PAUSE
        while not self.stopping():
            started = time.monotonic()
            ending = await self._live()
            if self.stopping():
                return
            pause = MIN_PAUSE if time.monotonic() - started > STAYED_UP else min(pause * 2, MAX_PAUSE)
            gateway_log.error("the %s %s; another starts in %.1f s", self._name, ending, pause)
            await asyncio.sleep(pause)

    async def stop(self, within: float = END_WITHIN) -> None:
        """End the process: with SIGTERM, and after `within` seconds with SIGKILL."""
        self._stopping = True
        if self._listener is not None:
            self._listener.close()
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                await process.wait()
        except TimeoutError:
            gateway_log.error("the %s does not end; killing it", self._name)
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def _live(self) -> str:
        """Run one process to its end, and say how that was."""
        name = ""
        ours, theirs = socket.socketpair()
        inherited = [theirs.fileno(), *([self._listener.fileno()] if self._listener is not None else [])]
        with theirs:
            channel = await Channel.open(ours, lambda message: self._receive(name, message), lambda: None)
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-P",  # a folder `gateway` where it was started is not this program
                    "-m",
                    f"gateway.runtime.{self._name}",
                    *map(str, inherited),
                    pass_fds=inherited,
                    start_new_session=True,  # Ctrl-C reaches only the supervisor
                )
            except OSError as error:
                channel.close()
                return f"could not be started: {error}"
        self._process, self._channel = process, channel
        lowering = asyncio.create_task(lower_priority(process.pid, NICENESS[self._name]))
        name = f"{self._name}-{process.pid}"
        channel.send("briefing", msgspec.msgpack.encode(self._brief()))
        if self.stopping():  # a stop during the start of the process
            _signal(process, signal.SIGTERM)
        self._reported.clear()
        self._has_reported = False
        watching = asyncio.create_task(self._kill_if_silent(process))
        try:
            code = await process.wait()
        finally:
            lowering.cancel()
            watching.cancel()
            self._channel = None
            channel.close()
            self.questions.close()
        self._on_end(name)
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def _kill_if_silent(self, process: asyncio.subprocess.Process) -> None:
        """End a process that has reported before and does not any more."""
        await self._reported.wait()
        while self._reported.is_set():
            self._reported.clear()
            await asyncio.sleep(SILENT_FOR)
        gateway_log.error("the %s has not reported for %.0f s; killing it", self._name, SILENT_FOR)
        _signal(process, signal.SIGKILL)

    def _receive(self, name: str, message: Message) -> None:
        self._reported.set()
        self._has_reported = True
        if message.name == "counts":
            self._on_counts(name, message.payload)
        elif message.name == "answer":
            self.questions.receive(message.payload)
        else:
            self._on_message(message)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
