"""The supervisor's side of the importer: one process after the other, each with a channel for its metrics.

Calls do not depend on it: a gateway whose importer cannot start serves, and its store keeps the lines.
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

from gateway.config.configuration import Configuration
from gateway.log import gateway_log
from gateway.runtime.ipc import Channel, Message

MIN_PAUSE, MAX_PAUSE = 0.1, 30.0  # seconds before it is started again
STAYED_UP = 60.0  # seconds after which it counts as stable
END_WITHIN = 10.0  # seconds for its last transaction
SILENT_FOR = 60.0  # seconds without its report, due every second, after which it counts as hung


class ImporterBriefing(msgspec.Struct, array_like=True):
    """The first message over the importer's channel."""

    configuration: Configuration
    deployment: str = ""  # of the store; empty before the store was reached for the first time
    socket: str = ""  # of the embedded store


class ImporterProcess:
    """Keeps one importer running."""

    def __init__(
        self,
        brief: Callable[[], ImporterBriefing],
        *,
        on_counts: Callable[[str, bytes], None],
        on_end: Callable[[str], None],
    ) -> None:
        self._brief = brief
        self._on_counts = on_counts  # gets the name of the process and its metrics
        self._on_end = on_end
        self._process: asyncio.subprocess.Process | None = None
        self._reported = asyncio.Event()
        self._stopping = False

    @property
    def pid(self) -> int:
        """The running process; 0 for none."""
        return self._process.pid if self._process is not None and self._process.returncode is None else 0

    def stopping(self) -> bool:
        """Whether it is to stop."""
        return self._stopping

    async def keep_alive(self) -> None:
        """Keep a process running until `stop`."""
        pause = MIN_PAUSE
        while not self.stopping():
            started = time.monotonic()
            ending = await self._live()
            if self.stopping():
                return
            pause = MIN_PAUSE if time.monotonic() - started > STAYED_UP else min(pause * 2, MAX_PAUSE)
            gateway_log.error("the importer %s; another starts in %.1f s", ending, pause)
            await asyncio.sleep(pause)

    async def stop(self, within: float = END_WITHIN) -> None:
        """End the process: with SIGTERM, and after `within` seconds with SIGKILL."""
        self._stopping = True
        process = self._process
        if process is None or process.returncode is not None:
            return
        _signal(process, signal.SIGTERM)
        try:
            async with asyncio.timeout(within):
                await process.wait()
        except TimeoutError:
            gateway_log.error("the importer does not end; killing it")
            _signal(process, signal.SIGKILL)
            await process.wait()

    async def _live(self) -> str:
        """Run one process to its end, and say how that was."""
        name = ""
        ours, theirs = socket.socketpair()
        with theirs:
            channel = await Channel.open(ours, lambda message: self._receive(name, message), lambda: None)
            try:
                process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    "-m",
                    "gateway.runtime.importer",
                    str(theirs.fileno()),
                    pass_fds=(theirs.fileno(),),
                    start_new_session=True,  # Ctrl-C reaches only the supervisor
                )
            except OSError as error:
                channel.close()
                return f"could not be started: {error}"
        self._process = process
        name = f"importer-{process.pid}"
        channel.send("briefing", msgspec.msgpack.encode(self._brief()))
        if self.stopping():  # a stop during the start of the process
            _signal(process, signal.SIGTERM)
        self._reported.clear()
        watching = asyncio.create_task(self._kill_if_silent(process))
        try:
            code = await process.wait()
        finally:
            watching.cancel()
            channel.close()
        self._on_end(name)
        return f"ended by signal {-code}" if code < 0 else f"ended with exit code {code}"

    async def _kill_if_silent(self, process: asyncio.subprocess.Process) -> None:
        """End a process that has reported before and does not any more."""
        await self._reported.wait()
        while self._reported.is_set():
            self._reported.clear()
            await asyncio.sleep(SILENT_FOR)
        gateway_log.error("the importer has not reported for %.0f s; killing it", SILENT_FOR)
        _signal(process, signal.SIGKILL)

    def _receive(self, name: str, message: Message) -> None:
        if message.name == "counts":
            self._reported.set()
            self._on_counts(name, message.payload)


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(number)
