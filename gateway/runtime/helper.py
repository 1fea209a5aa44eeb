"""The helper's side of a helper process: signals, the briefing, the store, and the end.

::

    helper = Helper("importer", channel)
    await helper.run(work)          # async def work(briefing: HelperBriefing, store: Store) -> None

The importer, the console and the runner of batches are helpers (`helper_process` starts them). A helper gets the
configuration over its channel, and ends at SIGTERM or when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import msgspec

from gateway import log
from gateway.config.secret import SecretError
from gateway.log import gateway_log
from gateway.metrics import Metrics, encode_delta
from gateway.metrics.process import ProcessMetrics
from gateway.runtime.helper_process import HelperBriefing
from gateway.runtime.ipc import Channel, Message
from gateway.store import Store, StoreSetupError
from gateway.store.configured import configured_address
from gateway.store.identity import StoreGuard

STORE_TIMEOUT = 5.0  # seconds for one answer of the store; no call waits for a helper
REPORT_EVERY = 1.0  # seconds between two reports to the supervisor

Work = Callable[[HelperBriefing, Store], Awaitable[None]]


class Helper:
    """One helper process from start to stop. `on_message` gets what the supervisor sends after the briefing."""

    def __init__(
        self, name: str, channel: socket.socket, on_message: Callable[[Message], None] = lambda message: None
    ) -> None:
        self._name = name  # importer, console or batches
        self._socket = channel
        self._on_message = on_message
        self._channel: Channel | None = None
        self._briefing: asyncio.Future[HelperBriefing] = asyncio.get_running_loop().create_future()
        self.stop = asyncio.Event()
        self._process: ProcessMetrics | None = None
        self._lag = 0.0  # seconds by which the last report was late

    async def run(self, work: Work) -> None:
        """Do `work`, which ends after `stop` is set."""
        self._heed_signals()
        channel = self._channel = await Channel.open(self._socket, self._receive, self.stop.set)
        stopping = asyncio.create_task(self.stop.wait())
        either: set[asyncio.Future[Any]] = {stopping, self._briefing}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._briefing.done():
            await self._work(work, self._briefing.result())
        stopping.cancel()
        channel.close()

    def send(self, name: str, payload: bytes = b"") -> None:
        """Send a message to the supervisor."""
        assert self._channel is not None
        self._channel.send(name, payload)

    def report(self, metrics: Metrics) -> None:
        """Send what has changed in the metrics: at least what the process uses, so that it is not silent."""
        if self._process is None:
            self._process = ProcessMetrics(metrics, self._name)
        self._process.note(self._lag)
        metrics.store_errors()
        if (delta := metrics.drain()) is not None:
            self.send("counts", encode_delta(delta))

    async def report_forever(self, report: Callable[[], None]) -> None:
        """Call `report`, which sends something: the supervisor kills a helper that is silent."""
        loop = asyncio.get_running_loop()
        while True:
            report()
            due = loop.time() + REPORT_EVERY
            await asyncio.sleep(REPORT_EVERY)
            self._lag = max(0.0, loop.time() - due)

    async def _work(self, work: Work, briefing: HelperBriefing) -> None:
        settings = briefing.configuration.settings()
        log.configure(settings.log.level, form=settings.log.form, access=settings.log.access)
        store = await Store.open(
            configured_address(settings) or briefing.socket,
            timeout=STORE_TIMEOUT,
            required=False,
            guard=StoreGuard(deployment=briefing.deployment),
        )
        try:
            await work(briefing, store)
        finally:
            await store.close()

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self.stop.set)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            loop.add_signal_handler(number, lambda: None)  # the supervisor handles these signals

    def _receive(self, message: Message) -> None:
        if message.name != "briefing":
            self._on_message(message)
        elif not self._briefing.done():
            self._briefing.set_result(msgspec.msgpack.decode(message.payload, type=HelperBriefing))


def main(name: str, argv: list[str], run: Callable[..., Coroutine[Any, Any, None]]) -> int:
    """Run a helper's process; the arguments are the numbers of its inherited sockets. The exit code."""
    log.configure()
    sockets = [socket.socket(fileno=int(number)) for number in argv]
    for sock in sockets:
        sock.set_inheritable(False)
    try:
        asyncio.run(run(*sockets))
    except (StoreSetupError, SecretError, OSError) as error:
        gateway_log.error("the %s cannot start: %s", name, error)
        return 1
    return 0
