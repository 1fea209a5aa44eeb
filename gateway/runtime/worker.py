"""One serving process: `python -m gateway.runtime.worker SPEC`, started and watched by the supervisor.

It gets its configuration over its channel, builds a `Gateway`, serves on the inherited listening socket, and reports
its metrics. SIGTERM drains it, and so does the end of the channel: a worker does not run without a supervisor. Sharp
edge: a worker ignores SIGINT, SIGHUP and SIGUSR1; the supervisor handles them.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Coroutine
from typing import NoReturn

import msgspec
from msgspec import structs

from gateway import log
from gateway.api.protocol_errors import ProtocolErrors
from gateway.config.configuration import Configuration
from gateway.config.secret import SecretError
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.errors import Draining
from gateway.http_server.client_address import Network
from gateway.http_server.server import HTTPServer
from gateway.http_server.tls_pair import TlsPair
from gateway.http_server.tls_state import TlsState
from gateway.ledger import Journal
from gateway.log import gateway_log
from gateway.metrics import encode_delta
from gateway.metrics.process import ProcessMetrics
from gateway.plugins.loader import PluginRefused
from gateway.routing.upstream_reach import UpstreamReach
from gateway.runtime.call_questions import answer_calls
from gateway.runtime.client_limits import trusted_proxies, worker_limits
from gateway.runtime.connection_report import ConnectionReport
from gateway.runtime.gateway import Gateway
from gateway.runtime.interpreter import (
    background_executor,
    collect_rarely,
    new_event_loop,
    return_large_blocks,
    switch_threads_often,
    without_collections,
)
from gateway.runtime.ipc import CUT_WITHIN, REPORT_EVERY, SETTLE_WITHIN, Briefing, Channel, Message, WorkerSpec
from gateway.runtime.questions import read_question, write_reply
from gateway.store import Store, StoreSetupError
from gateway.store.configured import configured_address
from gateway.store.identity import StoreGuard

REPORTED_AT_ONCE = 100  # metric series in one message, at least one per used model; each takes 7 µs of the event loop
ORPHAN_GRACE = 5.0  # seconds beyond drain_timeout that a worker without a supervisor may live


class Worker:
    """Runs one worker from start to stop."""

    def __init__(self, spec: WorkerSpec) -> None:
        self.spec = spec
        self.draining = asyncio.Event()
        self.hurry = asyncio.Event()  # stop draining: cut the running requests
        self.gateway: Gateway | None = None
        self.server: HTTPServer | None = None
        self.guard = StoreGuard()
        self.channel: Channel | None = None
        self.tls: TlsState | None = None
        self._briefing: asyncio.Future[Briefing | None] = asyncio.get_running_loop().create_future()
        self._built = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()  # started by messages
        self._one_reload = asyncio.Lock()
        self._newest: Configuration | None = None  # of the reloads that have arrived
        self._reaches_upstreams = True  # as told to the supervisor
        self._reach: UpstreamReach | None = None
        self._process: ProcessMetrics | None = None
        self._called: set[str] = set()  # providers of the configurations so far
        self._most_connections = 0

    async def run(self) -> None:
        """Serve until a stop signal."""
        self._heed_signals()
        listener, channel = (socket.socket(fileno=fd) for fd in (self.spec.listen_fd, self.spec.channel_fd))
        for sock in (listener, channel):
            sock.set_inheritable(False)  # a child process of a plugin must not keep the port open
        self.channel = await Channel.open(channel, self._receive, self._supervisor_gone)
        briefing = await self._briefing
        if briefing is None:
            return
        settings = briefing.configuration.settings()
        log.configure(settings.log.level, form=settings.log.form, access=settings.log.access)
        self.tls = TlsState(briefing.tls) if briefing.tls is not None else None
        self.gateway = await self._build(settings, briefing)
        self._built.set()
        await self._serve(self.gateway, listener)
        await self._report()
        self.channel.close()
        if self.gateway.dispatcher.stuck:
            gateway_log.warning(
                "ending without %d calls that their providers do not end", len(self.gateway.dispatcher.stuck)
            )
            logging.shutdown()
            os._exit(0)  # the event loop would wait for their tasks

    def _heed_signals(self) -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._drain_soon)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1):
            loop.add_signal_handler(number, lambda: None)  # the supervisor handles these signals

    async def _build(self, settings: Settings, briefing: Briefing) -> Gateway:
        peppers = briefing.peppers
        self.guard = StoreGuard(deployment=briefing.deployment or self.guard.deployment, peppers=peppers.fingerprints)
        store = await Store.open(
            configured_address(settings) or briefing.socket,
            timeout=settings.store.timeout,
            required=False,
            guard=self.guard,
        )
        journal = Journal(settings.data_dir / "journal")
        return await Gateway.build(
            settings,
            store,
            pepper=peppers.current,
            previous_pepper=peppers.previous,
            journal=journal,
            machine=briefing.machine,
        )

    async def _serve(self, gateway: Gateway, listener: socket.socket) -> None:
        limits = worker_limits(gateway.settings)
        self._most_connections = limits.max_connections
        server = self.server = HTTPServer(
            gateway.application(),
            limits,
            on_protocol_error=ProtocolErrors(gateway),
            preface_from=preface_from(gateway.settings),
            trusted=lambda: trusted_proxies(gateway.settings),
            on_full=ConnectionReport(gateway.metrics, limits.max_connections, "v1"),
            tls=self.tls,
        )
        await server.start(listener)
        # These objects live as long as the process, so the collector need not check them again.
        collect_rarely()
        switch_threads_often()
        asyncio.get_running_loop().set_default_executor(background_executor())
        self._tell("ready")
        reporting = asyncio.create_task(self._report_forever())
        await self.draining.wait()
        await self._drain(gateway, server)
        reporting.cancel()
        if self._reach is not None:
            self._reach.close()

    # Ending ----------------------------------------------------------------------------------------------------------

    async def _drain(self, gateway: Gateway, server: HTTPServer) -> None:
        """Let running requests finish within `drain_timeout`; cut the rest, and settle everything."""
        server.close_listener()
        gateway.disconnects.stop()
        self._tell("leaving")
        finished = asyncio.create_task(server.drain(gateway.settings.server.drain_timeout + CUT_WITHIN))
        hurry = asyncio.create_task(self.hurry.wait())
        await asyncio.wait(
            {finished, hurry}, timeout=gateway.settings.server.drain_timeout, return_when=asyncio.FIRST_COMPLETED
        )
        hurry.cancel()
        if not finished.done():
            cut = gateway.active_calls.cut_all(Draining())
            gateway_log.warning("draining ends with %d requests cut, %d connections open", cut, server.connections)
            await asyncio.wait({finished}, timeout=CUT_WITHIN)
            await server.drain(0.0)
        await finished
        if not await gateway.active_calls.all_settled(SETTLE_WITHIN):
            gateway.active_calls.cut_all(Draining())  # calls without a client whose upstream is still read
            await gateway.active_calls.all_settled(SETTLE_WITHIN)
        await gateway.close()

    def _drain_soon(self) -> None:
        self.draining.set()
        if not self._briefing.done():
            self._briefing.set_result(None)

    def _supervisor_gone(self) -> None:
        if self.draining.is_set():
            return
        gateway_log.error("the supervisor is gone: draining")
        self._drain_soon()
        patience = self.gateway.settings.server.drain_timeout if self.gateway is not None else 0.0
        # No supervisor can kill this worker if it hangs, for example in a plugin's shutdown.
        asyncio.get_running_loop().call_later(patience + CUT_WITHIN + 2 * SETTLE_WITHIN + ORPHAN_GRACE, _give_up)

    # Messages --------------------------------------------------------------------------------------------------------

    def _receive(self, message: Message) -> None:
        if message.name == "briefing" and not self._briefing.done():
            self._briefing.set_result(msgspec.msgpack.decode(message.payload, type=Briefing))
        elif message.name == "reload":
            self._start(self._reload(message.payload))
        elif message.name == "report":
            self._start(self._answer_report(message.payload))
        elif message.name == "ask":
            self._start(self._answer_question(message.payload))
        elif message.name == "deployment":
            self.guard.deployment = message.payload.decode()
        elif message.name == "tls" and self.tls is not None:
            self._start(self.tls.use(msgspec.msgpack.decode(message.payload, type=TlsPair)))
        elif message.name == "close after answers" and self.server is not None:
            self.server.close_after_answers()
        elif message.name == "hurry":
            self.hurry.set()

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self, payload: bytes) -> None:
        """Use a configuration, unless a newer one arrives before its turn; tell the supervisor if that fails."""
        try:
            configuration = self._newest = msgspec.msgpack.decode(payload, type=Configuration)
        except msgspec.MsgspecError as error:
            gateway_log.error("reload failed, the old configuration stays: %s", error)
            return
        await self._built.wait()
        assert self.gateway is not None
        async with self._one_reload:
            if configuration is not self._newest:
                return
            try:
                with without_collections():
                    settings = await asyncio.to_thread(configuration.settings)  # 2 s at 5,000 models
                    await self.gateway.reload(settings)
                log.set_level(settings.log.level)
                self._tell("reloaded", configuration.fingerprint)
            except Exception as error:
                # Third-party providers are created here and may raise anything; the worker keeps its old configuration.
                gateway_log.error("reload failed, the old configuration stays: %s", error, exc_info=error)
                if configuration is self._newest:
                    self._tell("reload refused", configuration.fingerprint)

    def _tell(self, name: str, payload: bytes = b"") -> None:
        if self.channel is not None:
            self.channel.send(name, payload)

    async def _report_forever(self) -> None:
        while True:
            await asyncio.sleep(REPORT_EVERY)
            self._report_upstreams()
            self._report_use()
            await self._report()
            self._tell("alive")  # without requests there are no counts

    def _report_upstreams(self) -> None:
        """Note the models without a target in the metrics, and say whether any target works, if that has changed."""
        assert self.gateway is not None
        self.gateway.model_health.note()
        if self._reach is None:
            self._reach = UpstreamReach(self.gateway.health, self.gateway.upstream)
        reaches = self._reach.look(time.monotonic()) and self.gateway.model_health.has_target
        if reaches != self._reaches_upstreams:
            self._reaches_upstreams = reaches
            self._tell("upstreams", b"1" if reaches else b"0")

    def _report_use(self) -> None:
        """Note what this worker uses of the machine and of its limits."""
        assert self.gateway is not None
        assert self.server is not None
        gateway, metrics = self.gateway, self.gateway.metrics
        if self._process is None:
            self._process = ProcessMetrics(metrics, f"worker-{self.spec.number}")
        self._process.note(gateway.overload.lag)
        metrics.store_errors()
        calls = gateway.active_calls.by_provider()
        self._called |= calls.keys()
        for provider in self._called:
            metrics.set("gateway_upstream_calls", (provider,), float(calls[provider]))
        metrics.capacity("connections_v1", self.server.connections, self._most_connections)
        for name, budget in (("body_bytes", gateway.bodies.memory), ("upload_bytes", gateway.bodies.disk)):
            metrics.capacity(name, budget.used, budget.most)
        if gateway.overload.max_memory:
            metrics.capacity("worker_bytes", gateway.overload.memory, gateway.overload.max_memory)

    async def _answer_question(self, payload: bytes) -> None:
        """Answer about running calls; without an answer the supervisor counts this worker as silent."""
        await self._built.wait()
        assert self.gateway is not None
        question = read_question(payload)
        self._tell("answer", write_reply(question, await answer_calls(question, self.gateway.active_calls)))

    async def _answer_report(self, payload: bytes) -> None:
        await self._report()
        self._tell("reported", payload)

    async def _report(self) -> None:
        """Send the metrics since the last report."""
        if self.gateway is None:
            return
        metrics = self.gateway.metrics
        metrics.log_lines_dropped(log.stderr.take_dropped())
        if self.gateway.journal is not None:
            metrics.journal_backlog(*structs.astuple(self.gateway.journal.backlog))
        for _ in range(metrics.tallied // REPORTED_AT_ONCE + 1):
            delta = metrics.drain(REPORTED_AT_ONCE)
            if delta is not None:
                self._tell("counts", encode_delta(delta))
            await asyncio.sleep(0)


def _give_up() -> NoReturn:
    gateway_log.error("draining does not end; giving up")
    logging.shutdown()
    os._exit(1)


def preface_from(settings: Settings) -> tuple[Network, ...]:
    """The proxies that send a PROXY header before each connection; none unless the settings say so."""
    return trusted_proxies(settings) if settings.server.proxy_protocol else ()


def main(argv: list[str]) -> int:
    """Entry of the worker process."""
    spec = msgspec.json.decode(argv[0], type=WorkerSpec)
    log.configure()
    return_large_blocks()
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(_run(spec))
    except (SettingsError, SecretError, StoreSetupError, PluginRefused, OSError) as error:
        gateway_log.error("worker %d cannot serve: %s", spec.number, error)
        return 1
    return 0


async def _run(spec: WorkerSpec) -> None:
    await Worker(spec).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
