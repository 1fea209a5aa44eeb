"""The main process of `gateway serve`: owns the sockets, the store, the side port and the workers; serves no request.

It binds one listening socket per worker (SO_REUSEPORT) and keeps it open while a dead worker is replaced, so
queued connections wait for the new one and do not fail. SIGTERM and SIGINT drain; a second one cuts the running
requests. SIGHUP reloads, and so does SIGUSR1, also if accounts are in a group that the new configuration lacks. Sharp
edge: if this process is killed, its workers drain by themselves and the embedded store ends at once. Their last
settlements then wait in their journals for the next start.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
import signal
import socket
import sys
import time
from collections.abc import Coroutine, Iterable
from functools import partial
from pathlib import Path

import msgspec

from gateway import log
from gateway.accounts.group_use import group_use, missing_groups
from gateway.accounts.pepper import PepperError, Peppers
from gateway.config.configuration import Configuration
from gateway.config.secret import SecretError
from gateway.config.secret_references import unreadable
from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError
from gateway.errors import GatewayError, StoreUnavailable
from gateway.log import configure, gateway_log, set_level
from gateway.metrics import Metrics, Totals, decode_delta
from gateway.runtime.demo import announce
from gateway.runtime.descriptors import raise_limit
from gateway.runtime.importer_process import ImporterBriefing, ImporterProcess
from gateway.runtime.pid_file import PidFile
from gateway.runtime.side_port import SidePort
from gateway.runtime.sockets import bind_all
from gateway.runtime.store_watch import StoreWatch
from gateway.runtime.worker import CUT_WITHIN, REPORT_EVERY, SETTLE_WITHIN, Briefing, WorkerSpec, new_event_loop
from gateway.runtime.worker_process import Life, WorkerProcess
from gateway.runtime.worker_recovery import WorkerRecovery
from gateway.store import EmbeddedServer, Store, StoreEvent, StoreSetupError
from gateway.store.address import StoreAddress
from gateway.store.configured import configured_address
from gateway.store.greeting import ServerIdentity
from gateway.store.identity import StoreGuard

GRACE = CUT_WITHIN + 2 * SETTLE_WITHIN + 3.0  # seconds beyond drain_timeout before a worker that does not end is killed
READY_WITHIN = 60.0  # seconds a worker may take to its first request
BIND_WITHIN = 1.0  # seconds for the workers of a killed supervisor to release the port


class StartError(Exception):
    """The gateway cannot start; the text is one line for the operator."""


class Supervisor:
    """Runs one gateway from start to stop."""

    def __init__(self, configuration: Configuration, *, accept_empty_store: bool = False) -> None:
        self.configuration = configuration
        self.settings = configuration.settings()
        self.draining = asyncio.Event()
        self.hurry = asyncio.Event()
        self.totals = Totals()
        self.metrics = Metrics()
        self.metrics.build_info()
        self.workers: list[WorkerProcess] = []
        self.embedded: EmbeddedServer | None = None
        self.store: Store | None = None
        self.watch: StoreWatch | None = None
        self._accept_empty_store = accept_empty_store
        self.side: SidePort | None = None
        self.recovery: WorkerRecovery | None = None
        self.importer: ImporterProcess | None = None
        self.failure: BaseException | None = None
        self._one_reload = asyncio.Lock()
        self._machine = secrets.token_hex(8)
        self._tasks: set[asyncio.Task[None]] = set()
        self._previous: Configuration | None = None  # of before the last reload, until a worker refuses that

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
            await self._drain()
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
        sockets = await _bind(server.host, server.port, server.workers)
        self.side = SidePort(self)
        await self.side.start((await _bind(metrics.host, metrics.port, 1))[0])
        self.watch = StoreWatch(
            self.settings,
            accept_empty=self._accept_empty_store,
            on_claimed=self._store_claimed,
            on_back=self._store_is_back,
        )
        self.store = await self._open_store(self.watch.guard)
        peppers = await self.watch.begin(self.store)
        self._keep(self.watch.run())
        self.recovery = WorkerRecovery(self.store, self.settings.data_dir / "journal")
        self._keep(self.recovery.run())
        self.workers = [self._worker(number, sock, peppers) for number, sock in enumerate(sockets)]
        for worker in self.workers:
            self._keep(worker.keep_alive())
        self._keep(self._watch_workers())
        self.importer = self._importer()
        self._keep(self.importer.keep_alive())
        await self._await_ready()
        host, port = sockets[0].getsockname()[:2]
        gateway_log.info("serving on http://%s:%d/v1, metrics on http://%s:%d/metrics", host, port, *self.side.address)
        if self.settings.demo:
            await announce(self.store, peppers.current, base_url=f"http://{host}:{port}/v1")

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
            self.metrics.inc("gateway_store_restarts")

    def _worker(self, number: int, sock: socket.socket, peppers: Peppers) -> WorkerProcess:
        return WorkerProcess(
            WorkerSpec(number=number, listen_fd=-1, channel_fd=-1),
            sock,
            brief=lambda: self._briefing(peppers),
            on_counts=lambda life, payload: self.totals.merge(decode_delta(payload), source=life.source),
            on_end=self._worker_ended,
            on_reload_refused=self._reload_refused,
        )

    def _briefing(self, peppers: Peppers) -> Briefing:
        assert self.watch is not None
        return Briefing(peppers, self.configuration, self.watch.guard.deployment, self._socket(), self._machine)

    def _socket(self) -> str:
        """The socket of the embedded store; empty if the store is another one."""
        return str(self.embedded.socket) if self.embedded is not None else ""

    def _importer(self) -> ImporterProcess:
        return ImporterProcess(
            self._importer_briefing,
            on_counts=lambda source, payload: self.totals.merge(decode_delta(payload), source=source),
            on_end=self._importer_ended,
        )

    def _importer_briefing(self) -> ImporterBriefing:
        assert self.watch is not None
        return ImporterBriefing(self.configuration, self.watch.guard.deployment, self._socket())

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
        """Read the configuration again; if it is valid, send it to every worker.

        `force`: also if accounts are in a group that it removes.
        """
        self._keep(self._reload_in_turn(force=force))

    async def _reload_in_turn(self, *, force: bool) -> None:
        async with self._one_reload:
            try:
                await self._reload(force=force)
            except Exception as error:
                # The edge of a reload: a failure must not stop a gateway that serves.
                gateway_log.error("reload failed, the old configuration stays: %s", error, exc_info=error)

    async def _reload(self, *, force: bool) -> None:
        try:
            configuration = Configuration.read(Path(self.configuration.file), demo=self.configuration.demo)
            settings = configuration.settings()
            _check_secrets(settings, before=self.settings)
        except SettingsError as error:
            _refuse_reload(str(error).splitlines())
            return
        if not force and (problems := await self._removed_groups(settings)):
            _refuse_reload(problems)
            return
        for name in _fixed(self.settings, settings):
            gateway_log.warning("%s has changed, which takes a restart", name)
        _log_warnings(settings)
        self._previous = self.configuration
        self._use(configuration, settings)

    async def _removed_groups(self, settings: Settings) -> list[str]:
        """A line for each group that `settings` removes while accounts are in it."""
        removed = self.settings.groups.keys() - settings.groups.keys()
        if not removed:
            return []
        assert self.store is not None
        try:
            use = await group_use(self.store)
        except GatewayError:
            return ["a group is removed, and the store does not say whether accounts are in it"]
        in_use = {group: found for group, found in use.items() if group in removed}
        return [f"groups.{group}: {text}" for group, text in missing_groups(in_use, settings.groups).items()]

    def _use(self, configuration: Configuration, settings: Settings) -> None:
        """Send the configuration to every worker, and to those that start later."""
        self.configuration, self.settings = configuration, settings
        set_level(settings.log.level)
        payload = msgspec.msgpack.encode(configuration)
        for worker in self.workers:
            worker.send("reload", payload)

    def _reload_refused(self) -> None:
        """A worker could not use the new configuration: all workers get the old one again."""
        if self._previous is None:
            return
        previous, self._previous = self._previous, None
        gateway_log.error("a worker refused the new configuration; all workers use the old one")
        self._use(previous, previous.settings())

    def _worker_ended(self, life: Life) -> None:
        self.totals.forget(life.source)
        if self.recovery is not None:
            self.recovery.look()
        if not self.draining.is_set():
            self.metrics.inc("gateway_worker_restarts")

    def _importer_ended(self, source: str) -> None:
        self.totals.forget(source)
        if not self.draining.is_set():
            self.metrics.inc("gateway_importer_restarts")

    async def _watch_workers(self) -> None:
        """Find workers that do not report. A pause of this process is not counted as theirs."""
        before = time.monotonic()
        while True:
            await asyncio.sleep(REPORT_EVERY)
            now = time.monotonic()
            for worker in self.workers:
                worker.check(min(now - before, 2 * REPORT_EVERY))
            before = now

    async def metrics_text(self, accept: str) -> tuple[bytes, str]:
        """The metrics of all workers up to now."""
        await asyncio.gather(*(worker.report() for worker in self.workers))
        self.metrics.log_lines_dropped(log.stderr.take_dropped())
        self.metrics.set("gateway_workers", (), sum(worker.ready for worker in self.workers))
        delta = self.metrics.drain()
        if delta is not None:
            self.totals.merge(delta, source="supervisor")
        return self.totals.text(accept)

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

    async def _drain(self) -> None:
        gateway_log.info("draining: no new connections, running requests finish")
        for worker in self.workers:
            worker.stop_accepting()
        within = self.settings.server.drain_timeout + GRACE
        ending = asyncio.create_task(self._stop_workers(within))
        hurry = asyncio.create_task(self.hurry.wait())
        await asyncio.wait([ending, hurry], return_when=asyncio.FIRST_COMPLETED)
        hurry.cancel()
        if not ending.done():
            gateway_log.warning("second stop signal: cutting running requests")
            ending.cancel()
            for worker in self.workers:
                worker.send("hurry")
            await self._stop_workers(GRACE)

    async def _stop_workers(self, within: float) -> None:
        await asyncio.gather(*(worker.stop(within) for worker in self.workers))

    async def _release(self) -> None:
        for worker in self.workers:
            await worker.stop(0.0)
        if self.importer is not None:
            await self.importer.stop()
        if self.side is not None:
            await self.side.close()
        if self.recovery is not None:
            await self.recovery.close()
        if self.store is not None:
            await self.store.close()
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
    _log_warnings(settings)
    try:
        if config_path is None:
            configuration = Configuration.of_demo(settings.data_dir)
        else:
            configuration = Configuration.read(config_path, demo=demo)
        with PidFile(settings.data_dir), asyncio.Runner(loop_factory=new_event_loop) as runner:
            runner.run(Supervisor(configuration, accept_empty_store=accept_empty_store).run())
    except (StartError, SettingsError, StoreSetupError, StoreUnavailable, PepperError, SecretError) as error:
        return _refuse(str(error))
    except OSError as error:
        return _refuse(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error))
    return 0


def _refuse_reload(problems: Iterable[str]) -> None:
    for problem in problems:
        gateway_log.error("reload refused, the old configuration stays: %s", problem)


def _check_secrets(settings: Settings, *, before: Settings) -> None:
    """SettingsError if a secret cannot be read; one that the running configuration cannot read either is accepted."""
    known = {(problem.key, problem.message) for problem in unreadable(before)}
    new = [problem for problem in unreadable(settings) if (problem.key, problem.message) not in known]
    if new:
        raise SettingsError(new)


def _log_warnings(settings: Settings) -> None:
    for warning in settings.warnings:
        gateway_log.warning("%s", warning)


def _refuse(reason: str) -> int:
    print(f"gateway: {reason}", file=sys.stderr)  # noqa: T201 - the one line the operator needs
    return 1


async def _bind(host: str, port: int, count: int) -> list[socket.socket]:
    deadline = asyncio.get_running_loop().time() + BIND_WITHIN
    while True:
        try:
            return bind_all(host, port, count)
        except OSError as error:
            if error.errno != errno.EADDRINUSE or asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.05)


def _fixed(before: Settings, now: Settings) -> list[str]:
    """The changed settings that are read only at the start, by key."""
    sections = ("metrics", "store", "database", "plugins")
    changed = [name for name in sections if getattr(before, name) != getattr(now, name)]
    at_start = [
        "host", "port", "workers", "header_timeout", "keepalive_timeout", "body_timeout", "body_total_timeout",
        "min_body_rate", "write_timeout", "max_header_bytes", "max_connections", "spool_dir", "keepalive_comment",
        "commit_after", "proxy_protocol",
    ]  # fmt: skip
    return (
        changed
        + [f"server.{name}" for name in at_start if getattr(before.server, name) != getattr(now.server, name)]
        + (["log.form"] if before.log.form != now.log.form else [])
    )
