"""The console process: `python -m gateway.runtime.console CHANNEL LISTENER`, started and watched by the supervisor.

It serves the admin API and the web pages on a port of its own, so that nothing on it delays a call. It applies reloads.
"""

from __future__ import annotations

import asyncio
import shlex
import socket
import sys
from collections.abc import Coroutine
from pathlib import Path

import msgspec

from gateway import log
from gateway.admin_api.api import AdminApi
from gateway.admin_api.authentication import Authentication
from gateway.admin_api.server import AdminServer
from gateway.config.configuration import Configuration
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.console.handler import console_rules
from gateway.console.site import Site
from gateway.discovery.list_reader import ListFollower
from gateway.errors import GatewayError
from gateway.http_server.tls_pair import TlsPair
from gateway.http_server.tls_state import TlsState
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.runtime import helper
from gateway.runtime.client_limits import console_limits
from gateway.runtime.connection_report import ConnectionReport
from gateway.runtime.console_calls import ConsoleCalls
from gateway.runtime.console_requests import LocalRequests
from gateway.runtime.helper import Helper
from gateway.runtime.helper_process import HelperBriefing
from gateway.runtime.interpreter import switch_threads_often
from gateway.runtime.ipc import Message
from gateway.runtime.local_socket import LocalServer
from gateway.runtime.pid_file import ask_reload
from gateway.runtime.questions import Questions
from gateway.services.services import AdminServices
from gateway.store import Store, StoreSetupError


class Console:
    """Serves the admin API and the pages at a socket that listens."""

    def __init__(self, channel: socket.socket, listener: socket.socket) -> None:
        self._helper = Helper("console", channel, self._receive)
        self._listener = listener
        self._questions = Questions(self._helper.send)  # to the supervisor
        self._metrics = Metrics()
        self._services: AdminServices | None = None
        self._newest: bytes | None = None  # configuration of the reloads that have arrived
        self._one_reload = asyncio.Lock()
        self._lists: ListFollower | None = None
        self._tasks: set[asyncio.Task[None]] = set()  # reloads, and renewals of the certificate
        self._tls: TlsState | None = None

    async def run(self) -> None:
        """Serve until SIGTERM."""
        await self._helper.run(self._serve)

    async def _serve(self, briefing: HelperBriefing, store: Store) -> None:
        switch_threads_often()  # beside a reload, and other work in threads
        settings = briefing.configuration.settings()
        calls = ConsoleCalls(self._questions)
        tls = self._tls = TlsState(briefing.tls) if briefing.tls is not None else None
        services = AdminServices(settings, store, calls, ask_reload=ask_reload, metrics=self._metrics, tls=tls)
        self._lists = ListFollower(store, services.use_models)
        self._begin(services)
        site = Site(services) if settings.console.pages else None
        pages = console_rules(site) if site is not None else ()
        limits = console_limits(settings)
        server = AdminServer(
            AdminApi(services, Authentication(services)),
            pages=pages,
            limits=limits,
            on_full=ConnectionReport(self._metrics, limits.max_connections, "console"),
            tls=tls,
        )
        await server.start(self._listener)
        requests = LocalRequests(services)
        local = await _open_local(settings.data_dir, requests)
        reporting = asyncio.create_task(self._helper.report_forever(lambda: self._helper.report(self._metrics)))
        opening = asyncio.create_task(_open_database(services))
        looking = asyncio.create_task(services.attention.run())
        following = asyncio.create_task(self._lists.run(lambda: services.discovered, self._one_reload))
        await self._helper.stop.wait()
        tasks = {reporting, opening, looking, following, *self._tasks}
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await server.close()
        if site is not None:
            site.surface.access_log.flush()
        await local.close()
        requests.close()
        await services.close()

    def _begin(self, services: AdminServices) -> None:
        """Apply reloads from now on, and the one that arrived last."""
        self._services = services
        if self._newest is not None:
            self._start_reload(services, self._newest)

    def _receive(self, message: Message) -> None:
        if message.name == "reload":
            self._newest = message.payload
            if self._services is not None:
                self._start_reload(self._services, message.payload)
        elif message.name == "tls" and self._tls is not None:
            self._keep(self._tls.use(msgspec.msgpack.decode(message.payload, type=TlsPair)))
        elif message.name == "answer":
            self._questions.receive(message.payload)

    def _start_reload(self, services: AdminServices, payload: bytes) -> None:
        self._keep(self._reload(services, payload))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self, services: AdminServices, payload: bytes) -> None:
        """Use a configuration, unless a newer one arrives before its turn."""
        async with self._one_reload:
            if payload is not self._newest:
                return
            try:
                # 2 s at 5,000 models, in which pages and the admin API answer.
                settings = await asyncio.to_thread(msgspec.msgpack.decode(payload, type=Configuration).settings)
            except SettingsError as error:
                gateway_log.error("the console keeps the old configuration: %s", error)
                return
            if self._lists is None or not settings.discovers:
                services.use(settings)
            else:
                services.use(settings, await self._lists.with_lists(settings))
            log.set_level(settings.log.level)


async def _open_database(services: AdminServices) -> None:
    """Open the database before the first request; that one tries again if it fails."""
    settings = services.settings
    try:
        people = await services.people()
        # The demo makes its operator meanwhile.
        if settings.console.pages and not settings.is_demo and not await people.users.has_operator():
            gateway_log.info("%s", first_operator(settings))
    except GatewayError as error:
        gateway_log.error("the console cannot use the database yet: %s %s", error.message, error.log_text())


def first_operator(settings: Settings) -> str:
    """How to make the first operator, as a line of the log."""
    file = f" --config {shlex.quote(settings.file)}" if settings.file else ""
    return f"nobody can sign in to the console yet: gateway users create EMAIL --operator{file} prints a link"


async def _open_local(data_dir: Path, requests: LocalRequests) -> LocalServer:
    """The local socket; without it the admin API serves, and `GET /v1/usage` does not."""
    local = LocalServer(data_dir, requests.answer)
    try:
        await local.start()
    except (OSError, StoreSetupError) as error:
        gateway_log.error("the console cannot listen on its local socket: %s", error)
    return local


async def _run(channel: socket.socket, listener: socket.socket) -> None:
    await Console(channel, listener).run()


if __name__ == "__main__":
    sys.exit(helper.main("console", sys.argv[1:], _run))
