"""The console process: `python -m gateway.runtime.console CHANNEL LISTENER`, started and watched by the supervisor.

It serves the admin API on a port of its own, so that nothing on it delays a call. It gets the configuration over its
channel, also after a reload, and ends at SIGTERM or when the supervisor is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any

import msgspec

from gateway import log
from gateway.admin_api.api import AdminApi
from gateway.admin_api.authentication import Authentication
from gateway.admin_api.server import AdminServer
from gateway.admin_api.services import AdminServices
from gateway.config.configuration import Configuration
from gateway.config.secret import SecretError
from gateway.config.toml_reader import SettingsError
from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.runtime.console_calls import ConsoleCalls
from gateway.runtime.console_requests import LocalRequests
from gateway.runtime.helper_process import HelperBriefing
from gateway.runtime.ipc import Channel, Message
from gateway.runtime.local_socket import LocalServer
from gateway.runtime.questions import Questions
from gateway.store import Store, StoreSetupError
from gateway.store.configured import configured_address
from gateway.store.identity import StoreGuard

REPORT_EVERY = 1.0  # seconds between signs of life
STORE_TIMEOUT = 5.0  # seconds for one answer of the store
NICENESS = 5  # calls go first where there is one processor for both


class ConsoleRunner:
    """Runs the console from start to stop."""

    def __init__(self, channel: socket.socket, listener: socket.socket) -> None:
        self._socket = channel
        self._listener = listener
        self._stop = asyncio.Event()
        self._briefing: asyncio.Future[HelperBriefing] = asyncio.get_running_loop().create_future()
        self._services: AdminServices | None = None
        self._questions: Questions | None = None  # to the supervisor

    async def run(self) -> None:
        """Serve until SIGTERM."""
        self._heed_signals()
        channel = await Channel.open(self._socket, self._receive, self._stop.set)
        stopping = asyncio.create_task(self._stop.wait())
        either: set[asyncio.Future[Any]] = {stopping, self._briefing}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._briefing.done():
            await self._serve(self._briefing.result(), channel)
        stopping.cancel()
        channel.close()

    async def _serve(self, briefing: HelperBriefing, channel: Channel) -> None:
        settings = briefing.configuration.settings()
        log.configure(settings.log.level, form=settings.log.form, access=settings.log.access)
        store = await Store.open(
            configured_address(settings) or briefing.socket,
            timeout=STORE_TIMEOUT,
            required=False,
            guard=StoreGuard(deployment=briefing.deployment),
        )
        questions = self._questions = Questions(channel.send)
        services = self._services = AdminServices(settings, store, ConsoleCalls(questions))
        server = AdminServer(AdminApi(services, Authentication(services)))
        server.start(self._listener)
        requests = LocalRequests(services)
        local = await _open_local(settings.data_dir, requests)
        reporting = asyncio.create_task(_report_forever(channel))
        opening = asyncio.create_task(_open_database(services))
        await self._stop.wait()
        for task in (reporting, opening):
            task.cancel()
        await asyncio.gather(reporting, opening, return_exceptions=True)
        await server.close()
        await local.close()
        requests.close()
        await services.close()
        await store.close()

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._stop.set)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            loop.add_signal_handler(number, lambda: None)  # the supervisor handles these signals

    def _receive(self, message: Message) -> None:
        if message.name == "briefing" and not self._briefing.done():
            self._briefing.set_result(msgspec.msgpack.decode(message.payload, type=HelperBriefing))
        elif message.name == "reload" and self._services is not None:
            self._reload(self._services, message.payload)
        elif message.name == "answer" and self._questions is not None:
            self._questions.receive(message.payload)

    def _reload(self, services: AdminServices, payload: bytes) -> None:
        try:
            settings = msgspec.msgpack.decode(payload, type=Configuration).settings()
        except SettingsError as error:
            gateway_log.error("the console keeps the old configuration: %s", error)
            return
        services.use(settings)
        log.set_level(settings.log.level)


async def _open_database(services: AdminServices) -> None:
    """Open the database before the first request; that one tries again if it fails."""
    try:
        await services.people()
    except GatewayError as error:
        gateway_log.error("the console cannot use the database yet: %s %s", error.message, error.log_text())


async def _open_local(data_dir: Path, requests: LocalRequests) -> LocalServer:
    """The local socket; without it the admin API serves, and `GET /v1/usage` does not."""
    local = LocalServer(data_dir, requests.answer)
    try:
        await local.start()
    except (OSError, StoreSetupError) as error:
        gateway_log.error("the console cannot listen on its local socket: %s", error)
    return local


async def _report_forever(channel: Channel) -> None:
    while True:
        channel.send("alive")
        await asyncio.sleep(REPORT_EVERY)


def main(argv: list[str]) -> int:
    """Entry of the console process."""
    log.configure()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    channel, listener = (socket.socket(fileno=int(number)) for number in argv)
    for sock in (channel, listener):
        sock.set_inheritable(False)
    try:
        asyncio.run(_run(channel, listener))
    except (StoreSetupError, SecretError, OSError) as error:
        gateway_log.error("the console cannot start: %s", error)
        return 1
    return 0


async def _run(channel: socket.socket, listener: socket.socket) -> None:
    await ConsoleRunner(channel, listener).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
