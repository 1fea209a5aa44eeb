"""The main process of `gateway serve`: owns the sockets, the store, the side port and the workers; serves no request.

It binds one listening socket per worker (SO_REUSEPORT) and keeps it open while a dead worker is replaced, so
queued connections wait for the new one and do not fail. SIGTERM and SIGINT stop it (`stopping`); a second one cuts the
running requests. SIGHUP reloads, and so does SIGUSR1, also if accounts are in a group that the new configuration lacks.
Sharp edge: if this process is killed, its workers drain by themselves and the embedded store ends at once. Their last
settlements then wait in their journals for the next start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import signal
import socket
import sys
from collections.abc import Coroutine
from functools import partial
from pathlib import Path

from msgspec.msgpack import encode

from gateway.accounts.pepper import PepperError, Peppers
from gateway.config.configuration import Configuration
from gateway.config.secret import SecretError
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.errors import StoreUnavailable
from gateway.http_server.tls_pair import TlsPairs, TlsProblem
from gateway.http_server.tls_watch import TlsWatch
from gateway.log import configure, gateway_log
from gateway.runtime.accept_queue import AcceptQueues, warn_of_shorter_queue
from gateway.runtime.client_limits import side_limits, trusted_proxies
from gateway.runtime.connection_report import ConnectionReport
from gateway.runtime.console_calls import ConsoleRelay
from gateway.runtime.demo import announce
from gateway.runtime.descriptors import raise_limit
from gateway.runtime.helper_process import HelperBriefing, HelperProcess
from gateway.runtime.interpreter import new_event_loop
from gateway.runtime.ipc import Briefing, Message, WorkerSpec
from gateway.runtime.machine_metrics import MachineMetrics
from gateway.runtime.machine_report import MachineReport
from gateway.runtime.older_store import let_older_store_close
from gateway.runtime.pid_file import PidFile
from gateway.runtime.process_manager import Systemd, shutdown_delay
from gateway.runtime.reloads import Reloads, Result, log_warnings
from gateway.runtime.side_port import SidePort
from gateway.runtime.sockets import bind_console, bind_soon, log_addresses
from gateway.runtime.stopping import drain, serve_on
from gateway.runtime.store_watch import StoreWatch
from gateway.runtime.worker_process import Life, WorkerProcess, watch_workers
from gateway.runtime.worker_recovery import WorkerRecovery
from gateway.store import EmbeddedServer, Store, StoreEvent, StoreSetupError
from gateway.store.address import StoreAddress
from gateway.store.configured import configured_address
from gateway.store.greeting import ServerIdentity
from gateway.store.identity import StoreGuard
from gateway.telemetry.metric_sender import send_metrics

READY_WITHIN = 60.0  # seconds a worker may take to its first request


class StartError(Exception):
    """The gateway cannot start; the text is one line for the operator."""


class Supervisor:
    """Runs one gateway from start to stop."""

    def __init__(self, configuration: Configuration, *, accept_empty_store: bool = False) -> None:
        self.reloads = Reloads(configuration, self._send_configuration, self._reloaded)
        self.systemd = Systemd(os.environ)
        self.draining = asyncio.Event()
        self.hurry = asyncio.Event()
        self.metrics = MachineMetrics(self.settings)
        self.workers: list[WorkerProcess] = []
        self.embedded: EmbeddedServer | None = None
        self.store: Store | None = None
        self.watch: StoreWatch | None = None
        self._accept_empty_store = accept_empty_store
        self.side: SidePort | None = None
        self.recovery: WorkerRecovery | None = None
        self.importer: HelperProcess | None = None
        self.console: HelperProcess | None = None  # None without [console] enabled
        self.batches: HelperProcess | None = None  # None until [batches] is enabled
        self._peppers: Peppers | None = None
        self.tls = TlsWatch(self.metrics.certificate, self._send_tls)
        self.failure: BaseException | None = None
        self._machine = secrets.token_hex(8)
        self.report = MachineReport(
            self._machine, self.settings, lambda: self.metrics.state(self.workers, self.watch, self.reloads)
        )
        self.relay = ConsoleRelay(self._machine, lambda: self.report.name, lambda: self.workers, lambda: self.batches)
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def configuration(self) -> Configuration:
        """The configuration that workers have, or get at their start."""
        return self.reloads.configuration

    @property
    def settings(self) -> Settings:
        """The settings in it."""
        return self.reloads.settings

    async def run(self) -> None:
        """Serve until a signal; raises the error of a failed start."""
        self._handle_signals()
        starting = asyncio.create_task(self._start())
        stopping = asyncio.create_task(self.draining.wait())
        try:
            await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                await starting
                await stopping
            await self._stop(serves=starting.done())
        finally:
            tasks = {starting, stopping, *self._tasks}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self._release()
        if self.failure is not None:
            raise self.failure

    def _handle_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.stop)
        # Without a file there is nothing to reload. SIGHUP then means that the terminal of a demo was closed.
        loop.add_signal_handler(signal.SIGHUP, self.reload if self.configuration.file else self.stop)
        if self.configuration.file:
            loop.add_signal_handler(signal.SIGUSR1, partial(self.reload, force=True))

    def stop(self) -> None:
        """Drain; a second call cuts the running requests."""
        if self.draining.is_set():
            self.hurry.set()
        self.draining.set()

    # Starting --------------------------------------------------------------------------------------------------------

    async def _start(self) -> None:
        server, metrics = self.settings.server, self.settings.metrics
        await self.tls.begin(self.settings.tls_files)
        self._keep(self.tls.run())
        warn_of_shorter_queue(server.limits.accept_queue)
        sockets = await bind_soon(server.host, server.port, server.workers)
        limits = side_limits(self.settings)
        report = ConnectionReport(self.metrics.own, limits.max_connections, "side")
        self.side = SidePort(self, limits, trusted=lambda: trusted_proxies(self.settings), on_full=report)
        await self.side.start((await bind_soon(metrics.host, metrics.port, 1))[0])
        console = await bind_console(self.settings.console)
        again, claimed = self._store_is_back, self._store_claimed
        empty = self._accept_empty_store
        self.watch = StoreWatch(self.settings, accept_empty=empty, on_claimed=claimed, on_back=again)
        self.store = await self._open_store(self.watch.guard)
        peppers = self._peppers = await self.watch.begin(self.store)
        await let_older_store_close(self.store, self.settings.data_dir, self._start_importer)
        self._keep(self.watch.run())
        self._keep(self.metrics.watch(self.settings.data_dir, self.store))
        self.recovery = WorkerRecovery(self.store, self.settings.data_dir / "journal")
        self._keep(self.recovery.run())
        self.workers = [self._worker(number, sock, peppers) for number, sock in enumerate(sockets)]
        for worker in self.workers:
            self._keep(worker.keep_alive())
        self._keep(watch_workers(self.workers, AcceptQueues(self.metrics.own)))
        self._start_importer()
        if console is not None:
            self.console = self._helper("console", console)
            self._keep(self.console.keep_alive())
        self._start_batches()
        self.reloads.begin(self.store)
        self._keep(self.report.run(self.store))
        self._keep(self.relay.others.run(self.store))
        await self._await_ready()
        host, port = sockets[0].getsockname()[:2]
        at = console.getsockname()[:2] if console is not None else None
        log_addresses(server.scheme, (host, port), self.side.address, at)
        self.systemd.serves()
        self._keep(send_metrics(self.settings.telemetry, self.measured))
        self._keep(self.systemd.send_watchdog_messages())
        if self.settings.demo:
            await announce(self.settings, self.store, peppers.current, base_url=f"{server.scheme}://{host}:{port}/v1")

    async def _open_store(self, guard: StoreGuard) -> Store:
        address: StoreAddress | Path | None = configured_address(self.settings)
        if address is None:
            self.embedded = EmbeddedServer(self.settings.data_dir)
            await self.embedded.start()
            address = self.embedded.socket
            self._keep(self.embedded.watch(self._store_event))
        store = await Store.open(address, timeout=self.settings.store.timeout, required=False, guard=guard)
        store.on_reconnect = self._reconnected
        return store

    def _start_importer(self) -> None:
        if self.importer is None:
            self.importer = self._helper("importer")
            self._keep(self.importer.keep_alive())

    def _start_batches(self) -> None:
        """At the start, or with the reload that enables them; one that disables them is for calls only."""
        if self.batches is None and self.settings.batches.enabled and self._peppers is not None:
            self.batches = self._helper("batches")
            self._keep(self.batches.keep_alive())

    def _store_claimed(self, deployment: str) -> None:
        """Tell the workers which store they belong to; later ones are told at their start."""
        for worker in self.workers:
            worker.send("deployment", deployment.encode())

    def _reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        if self.recovery is not None:
            self.recovery.reconnected(before, now)
        self._store_is_back()

    def _store_is_back(self) -> None:
        gateway_log.info("the store answers")
        if self.recovery is not None:
            self.recovery.look()

    def _store_event(self, event: StoreEvent) -> None:
        gateway_log.log(logging.WARNING if event.kind == "restarted" else logging.ERROR, "%s", event.detail)
        if event.kind == "restarted":
            self.metrics.own.inc("gateway_store_restarts")

    def _worker(self, number: int, sock: socket.socket, peppers: Peppers) -> WorkerProcess:
        return WorkerProcess(
            WorkerSpec(number=number, listen_fd=-1, channel_fd=-1),
            sock,
            brief=lambda: self._briefing(peppers),
            on_counts=lambda life, payload: self.metrics.add(life.source, payload),
            on_end=self._worker_ended,
            on_reload_refused=self.reloads.refused,
            on_using=lambda: self.reloads.used(uses for worker in self.workers if (uses := worker.uses) is not None),
        )

    def _briefing(self, peppers: Peppers) -> Briefing:
        assert self.watch is not None
        deployment, machine = self.watch.guard.deployment, self._machine
        return Briefing(peppers, self.configuration, deployment, self._socket(), machine, self.tls.api)

    def _socket(self) -> str:
        """The socket of the embedded store; empty if the store is another one."""
        return str(self.embedded.socket) if self.embedded is not None else ""

    def _helper(self, name: str, listener: socket.socket | None = None) -> HelperProcess:
        return HelperProcess(
            name,
            lambda: self._helper_briefing(name),
            on_counts=self.metrics.add,
            on_end=lambda source: self._helper_ended(name, source),
            on_message=self._helper_asks,
            listener=listener,
        )

    def _helper_briefing(self, name: str) -> HelperBriefing:
        assert self.watch is not None
        tls = self.tls.console if name == "console" else None
        peppers = self._peppers if name == "batches" else None
        return HelperBriefing(self.configuration, self.watch.guard.deployment, self._socket(), tls, peppers)

    async def _await_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_WITHIN):
                served = await asyncio.gather(*(worker.first_try() for worker in self.workers))
        except TimeoutError:
            raise StartError("no worker became ready in time; the log above says why") from None
        if not any(served):
            raise StartError("no worker could start; the log above says why")

    def _keep(self, coroutine: Coroutine[None, None, None]) -> None:
        """Run a background task; if it fails, the supervisor stops, because it cannot work without it."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._kept)

    def _kept(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (failure := task.exception()) is not None:
            if not isinstance(failure, (StoreSetupError, PepperError)):  # the operator gets these as one line
                gateway_log.critical("the supervisor failed; stopping", exc_info=failure)
            self.failure = failure
            self.draining.set()

    # Running ---------------------------------------------------------------------------------------------------------

    def reload(self, *, force: bool = False) -> None:
        """Read the configuration again; `force`: also if accounts are in a group that it removes."""
        self._keep(self.systemd.reloads(partial(self.reloads.run, force=force)))

    def _reloaded(self, result: Result) -> None:
        self.metrics.reloaded(result)
        self.report.changed()

    def _send_configuration(self, payload: bytes) -> None:
        self.metrics.use(self.settings)
        self.report.use(self.settings)
        for worker in self.workers:
            worker.send("reload", payload)
        for helper in filter(None, (self.console, self.batches)):
            helper.send("reload", payload)
        self._start_batches()

    def _send_tls(self, pairs: TlsPairs) -> None:
        for worker in self.workers:
            worker.send("tls", encode(pairs.api))
        if self.console is not None:
            self.console.send("tls", encode(pairs.console))

    def _worker_ended(self, life: Life) -> None:
        self.metrics.forget(life.source)
        if self.recovery is not None:
            self.recovery.look()
        if not self.draining.is_set():
            self.metrics.own.inc("gateway_worker_restarts")

    def _helper_ended(self, name: str, source: str) -> None:
        self.metrics.forget(source)
        if name == "batches" and self.recovery is not None:
            self.recovery.look()
        if not self.draining.is_set():
            self.metrics.own.inc(f"gateway_{name}_restarts")

    def _helper_asks(self, message: Message) -> None:
        if message.name == "ask" and self.console is not None:
            self._keep(self.relay.answer(message.payload, self.console.send))
        elif message.name == "drop":
            self.relay.drop(message.payload)

    async def measured(self) -> MachineMetrics:
        """The metrics of all workers up to now."""
        await asyncio.gather(*(worker.report() for worker in self.workers))
        self.metrics.measure(self.workers, self.recovery, self.watch)
        return self.metrics

    async def is_ready(self) -> dict[str, bool]:
        """The conditions of readiness, by name."""
        serving = [worker for worker in self.workers if worker.ready]
        return {
            "store": self.store is not None and self.watch is not None and await self.watch.is_usable(),
            "workers": bool(serving),
            "upstreams": not serving or any(worker.reaches_upstreams for worker in serving),
            "accepting": not self.draining.is_set(),
        }

    # Stopping --------------------------------------------------------------------------------------------------------

    async def _stop(self, *, serves: bool) -> None:
        """Serve on for a while if it `serves` and nothing has failed, then drain."""
        self.systemd.stops()
        server = self.settings.server
        if serves and self.failure is None and (delay := shutdown_delay(server, os.environ)):
            await serve_on(self.workers, delay, self.hurry)
        await drain(self.workers, server.drain_timeout, self.hurry)

    async def _release(self) -> None:
        for worker in self.workers:
            await worker.stop(0.0)
        for helper in filter(None, (self.batches, self.console, self.importer)):
            await helper.stop()
        for part in (self.side, self.recovery, self.store):
            if part is not None:
                await part.close()
        if self.embedded is not None:
            await self.embedded.stop()
        if self.store is not None:
            gateway_log.info("stopped")


def run(settings: Settings, *, config_path: Path | None, demo: bool, accept_empty_store: bool = False) -> int:
    """Run a gateway until a stop signal; returns the exit code.

    `accept_empty_store`: use a store without an identity although another one is known.
    """
    configure(settings.log.level, form=settings.log.form, access=settings.log.access)
    raise_limit()
    log_warnings(settings)
    try:
        if config_path is None:
            configuration = Configuration.of_demo(settings.data_dir)
        else:
            configuration = Configuration.read(config_path, demo=demo)
        with PidFile(settings.data_dir), asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(Supervisor(configuration, accept_empty_store=accept_empty_store).run())
    except TlsProblem as problem:
        return _refuse(str(problem))
    except (StartError, SettingsError, StoreSetupError, StoreUnavailable, PepperError, SecretError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    return 0


def _refuse(reason: str) -> int:
    print(f"gateway: {reason}", file=sys.stderr)  # noqa: T201 - the one line the operator needs
    return 1
