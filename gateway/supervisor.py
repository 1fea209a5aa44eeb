"""The process `gateway serve` is: it owns the sockets, the store, the side port and the workers, and serves no request.

It binds one listening socket per worker (SO_REUSEPORT) and keeps it open while a dead worker is replaced, so
connections that queued there wait for the new one instead of failing. SIGTERM and SIGINT drain; SIGHUP reloads. Sharp
edge: if this process is killed outright, its workers drain by themselves and the embedded store ends with it; the
next start goes on.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from pathlib import Path

from gateway.auth import PepperFault, pepper_of
from gateway.demo import announce
from gateway.errors import StoreUnavailable
from gateway.log import configure, gateway_log
from gateway.metrics import Metrics, Totals, decode_delta
from gateway.secret import SecretFault
from gateway.settings import Settings, SettingsFault, load
from gateway.sideport import SidePort
from gateway.sockets import bind_all
from gateway.store import EmbeddedServer, Store, StoreEvent, StoreFault
from gateway.worker import WorkerSpec, new_event_loop
from gateway.worker_process import WorkerProcess

GRACE = 5.0  # seconds beyond drain_timeout before a worker that does not end is killed
READY_WITHIN = 60.0  # seconds a worker may take to its first request


class StartFault(Exception):
    """The gateway cannot start; one line for the operator."""


class Supervisor:
    """The life of one gateway."""

    def __init__(self, settings: Settings, *, config_path: Path | None, demo: bool) -> None:
        self.settings = settings
        self.config_path = config_path
        self.demo = demo
        self.draining = asyncio.Event()
        self.totals = Totals()
        self.metrics = Metrics()
        self.metrics.build_info()
        self.workers: list[WorkerProcess] = []
        self.embedded: EmbeddedServer | None = None
        self.store: Store | None = None
        self.store_url = settings.store.url

    async def run(self) -> int:
        """Serve until a signal says stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self.draining.set)
        loop.add_signal_handler(signal.SIGHUP, self.reload)
        side: SidePort | None = None
        watching: list[asyncio.Task[None]] = []
        try:
            pepper = pepper_of(self.settings)
            watching.append(asyncio.create_task(self._watch_store(await self._open_store())))
            server, metrics = self.settings.server, self.settings.metrics
            sockets = bind_all(server.host, server.port, server.workers)
            side = SidePort(self)
            await side.start(bind_all(metrics.host, metrics.port, 1)[0])
            self.workers = [
                WorkerProcess(self._spec(number), sock, pepper, on_counts=self._counted, on_death=self._worker_died)
                for number, sock in enumerate(sockets)
            ]
            watching += [asyncio.create_task(worker.keep_alive()) for worker in self.workers]
            await self._await_ready()
            await self._announce(sockets[0].getsockname(), side, pepper)
            await self.draining.wait()
            await self._drain()
        finally:
            for task in watching:
                task.cancel()
            await self._release(side)
        return 0

    # Starting --------------------------------------------------------------------------------------------------------

    async def _open_store(self) -> EmbeddedServer | None:
        if not self.store_url:
            self.embedded = EmbeddedServer(self.settings.data_dir)
            await self.embedded.start()
            self.store_url = f"unix://{self.embedded.socket}"
        self.store = await Store.open(self.store_url, timeout=self.settings.store.timeout, required=False)
        try:
            for warning in await self.store.warnings():
                gateway_log.warning("%s", warning)
        except StoreUnavailable as error:
            gateway_log.error("the store does not answer yet: %s", error.detail or error)
        return self.embedded

    async def _watch_store(self, embedded: EmbeddedServer | None) -> None:
        if embedded is not None:
            await embedded.watch(self._store_event)

    def _store_event(self, event: StoreEvent) -> None:
        gateway_log.log(logging.WARNING if event.kind == "restarted" else logging.ERROR, "%s", event.detail)
        if event.kind == "restarted":
            self.metrics.inc("gateway_store_restarts")

    def _spec(self, number: int) -> WorkerSpec:
        return WorkerSpec(
            number=number,
            listen_fd=-1,
            channel_fd=-1,
            store_url=self.store_url,
            config_path=str(self.config_path) if self.config_path else None,
            demo=self.demo,
            data_dir=str(self.settings.data_dir),
        )

    async def _await_ready(self) -> None:
        try:
            async with asyncio.timeout(READY_WITHIN):
                await asyncio.gather(*(worker.first_ready() for worker in self.workers))
        except TimeoutError:
            raise StartFault("a worker did not become ready; its log says why") from None
        if all(worker.failed for worker in self.workers):
            raise StartFault("no worker could start; the log above says why")

    async def _announce(self, address: tuple[str, int], side: SidePort, pepper: bytes) -> None:
        host, port = address[:2]
        gateway_log.info("serving on http://%s:%d/v1, metrics on http://%s:%d/metrics", host, port, *side.address)
        if self.demo:
            assert self.store is not None
            await announce(self.store, pepper, base_url=f"http://{host}:{port}/v1")

    # Running ---------------------------------------------------------------------------------------------------------

    def reload(self) -> None:
        """Check the configuration anew; if it is sound, every worker takes it."""
        if self.config_path is None:
            return
        try:
            load(self.config_path, demo=self.demo)
        except (SettingsFault, OSError) as fault:
            gateway_log.error("reload refused, the old configuration stays: %s", fault)
            return
        for worker in self.workers:
            worker.send("reload")

    def _counted(self, worker: WorkerProcess, payload: bytes) -> None:
        self.totals.merge(decode_delta(payload), source=worker.source)

    def _worker_died(self, worker: WorkerProcess) -> None:
        self.totals.forget(worker.source)
        if not self.draining.is_set():
            self.metrics.inc("gateway_worker_restarts")

    async def metrics_text(self, accept: str) -> tuple[bytes, str]:
        """Everything counted up to now, by all workers."""
        await asyncio.gather(*(worker.report() for worker in self.workers))
        self.metrics.set("gateway_workers", (), sum(worker.ready for worker in self.workers))
        delta = self.metrics.drain()
        if delta is not None:
            self.totals.merge(delta, source="supervisor")
        return self.totals.text(accept)

    async def is_ready(self) -> dict[str, bool]:
        """What readiness consists of."""
        store = False
        if self.store is not None:
            try:
                await self.store.ping()
                store = True
            except StoreUnavailable:
                store = False
        return {
            "store": store,
            "workers": any(worker.ready for worker in self.workers),
            "accepting": not self.draining.is_set(),
        }

    # Stopping --------------------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        gateway_log.info("draining: no new connections, running requests finish")
        for worker in self.workers:
            worker.stop_accepting()
        await asyncio.gather(*(worker.stop(self.settings.server.drain_timeout + GRACE) for worker in self.workers))

    async def _release(self, side: SidePort | None) -> None:
        for worker in self.workers:
            await worker.stop(0.0)
        if side is not None:
            await side.close()
        if self.store is not None:
            await self.store.close()
        if self.embedded is not None:
            await self.embedded.stop()
        gateway_log.info("stopped")


def run(settings: Settings, *, config_path: Path | None, demo: bool) -> int:
    """Run a gateway until it is told to stop; the process's exit code."""
    configure(settings.log.level)
    try:
        with asyncio.Runner(loop_factory=new_event_loop) as runner:
            return runner.run(Supervisor(settings, config_path=config_path, demo=demo).run())
    except (StartFault, StoreFault, StoreUnavailable, PepperFault, SecretFault, OSError) as fault:
        print(f"gateway: {fault}", file=sys.stderr)  # noqa: T201 - the one line the operator needs
        return 1
