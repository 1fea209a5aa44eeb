"""Workers and their supervisor's recovery on one machine of a world: the real code, on its files."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gateway import hookimpl
from gateway.config.settings import PluginSettings, Settings
from gateway.ledger import Journal
from gateway.plugins.loader import PluginReport, Plugins, load_plugins
from gateway.runtime.gateway import Gateway
from gateway.runtime.worker_recovery import WorkerRecovery
from gateway.store import Store
from gateway.store.address import RedisAddress
from tests.simulation.http_callers import serve
from tests.simulation.network import Network
from tests.simulation.places import Place
from tests.simulation.processes import Process
from tests.simulation.store_end import ADDRESS
from tests.simulation.upstream import WorldProvider

PEPPER = b"a pepper of the simulated world"
Import = Callable[[Store], Awaitable[None]]  # what an importer process does
TIMEOUT = 1.0  # seconds, as in the configuration of a new gateway


def plugins() -> Plugins:
    """The provider of the world alone."""
    module = ModuleType("world")
    module.register_providers = hookimpl(lambda register: register(WorldProvider))  # type: ignore[attr-defined]
    found = load_plugins(PluginSettings())
    found.load(PluginReport(name="world", version="0", source="simulation"), lambda: module)
    return found


def address() -> RedisAddress:
    """The store of the world."""
    return RedisAddress(path=ADDRESS)


class Worker:
    """One worker process."""

    def __init__(self, process: Process, gateway: Gateway) -> None:
        self.process, self.gateway = process, gateway

    @classmethod
    async def start(
        cls, process: Process, settings: Settings, folder: Path, loaded: Plugins, network: Network | None
    ) -> Worker | None:
        """A worker that serves, with a network over HTTP, too; None if its process dies before."""

        async def build() -> Gateway:
            store = await Store.open(address(), timeout=TIMEOUT, required=False)
            journal = Journal(folder)
            process.on_kill.append(lambda: close_files(journal))
            return await Gateway.build(
                settings, store, pepper=PEPPER, plugins=loaded, journal=journal, machine=process.name[:2]
            )

        gateway = await process.finish(build())
        if gateway is None or not process.alive:
            return None
        if network is not None:
            process.run(lambda: serve(network, process, gateway))
        return cls(process, gateway)


class Machine:
    """A data directory, its workers, and the recovery of its supervisor."""

    _importer: Process | None

    def __init__(
        self,
        name: str,
        settings: Settings,
        folder: Path,
        loaded: Plugins,
        *,
        importer: Import | None = None,
        network: Network | None = None,
    ) -> None:
        self.name, self.settings, self._folder, self._loaded = name, settings, folder / name, loaded
        self._folder.mkdir()
        self.place = Place(name, self._folder)
        self.workers: list[Worker] = []
        self.processes: list[Process] = []
        self._recoveries: list[tuple[Process, WorkerRecovery]] = []
        self._supervisor: Process | None = None
        self._import, self._importer, self._network = importer, None, network
        self._started = 0

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self._supervisor is not None and self._supervisor.alive

    async def start_recovery(self) -> Process:
        """A supervisor with its recovery; an earlier one that lives goes on, too."""
        self._started += 1
        supervisor = Process(f"{self.name}-supervisor-{self._started}", self.place)
        self.processes.append(supervisor)
        if not self.alive:
            self._supervisor = supervisor

        async def build() -> WorkerRecovery:
            store = await Store.open(address(), timeout=TIMEOUT, required=False)
            recovery = WorkerRecovery(store, self._folder)
            supervisor.on_kill.append(lambda: close_files(recovery._journal))
            store.on_reconnect = recovery.reconnected
            return recovery

        recovery = await supervisor.finish(build())
        if recovery is not None:
            self._recoveries.append((supervisor, recovery))
            supervisor.start(recovery.run())
        return supervisor

    async def start(self, workers: int) -> None:
        """Start the recovery and the workers."""
        supervisor = await self.start_recovery()
        for _ in range(workers):
            if supervisor.alive:
                await self.start_worker()
        if supervisor.alive:
            await self.start_importer()

    async def start_worker(self) -> None:
        """One more worker."""
        self._started += 1
        process = Process(f"{self.name}-{self._started}", self.place)
        self.processes.append(process)
        settings = self.settings
        worker = await Worker.start(process, settings, self._folder, self._loaded, self._network)
        if worker is not None:
            self.workers.append(worker)
            if settings is not self.settings:  # they have changed meanwhile
                await process.finish(worker.gateway.reload(self.settings))

    async def reload(self, settings: Settings) -> None:
        """New settings for every worker, and for those that start later."""
        self.settings = settings
        await asyncio.gather(*(one.process.finish(one.gateway.reload(settings)) for one in self.workers))

    async def start_importer(self) -> None:
        """The importer, in a world that has a database."""
        work = self._import
        if work is None or (self._importer is not None and self._importer.alive):
            return
        self._started += 1
        process = self._importer = Process(f"{self.name}-importer-{self._started}", self.place)
        self.processes.append(process)

        async def serve() -> None:
            await work(await Store.open(address(), timeout=TIMEOUT, required=False))

        process.start(serve())

    def kill_importer(self) -> None:
        """SIGKILL."""
        if self._importer is not None:
            self._importer.kill()

    def kill_worker(self, worker: Worker) -> None:
        """SIGKILL; the supervisor notices."""
        worker.process.kill()
        self.workers.remove(worker)
        for process, recovery in self._recoveries:
            if process.alive:
                process.run(recovery.look)

    def crash(self) -> None:
        """Every process dies at once; the files stay."""
        for process in self.processes:
            process.kill()
        self.workers.clear()

    async def stop(self) -> None:
        """End as on SIGTERM: workers, then the recovery."""
        for worker in self.workers:
            await worker.process.start(worker.gateway.close())
        for process, recovery in self._recoveries:
            if process.alive:
                await process.start(recovery.close())


def close_files(journal: Any) -> None:
    """What the kernel closes when a process dies: its lock is free then."""
    for segment in journal._segments.values():
        with contextlib.suppress(OSError):
            if segment.descriptor >= 0:
                os.close(segment.descriptor)
                segment.descriptor = -1
    if journal._lock >= 0:
        os.close(journal._lock)
        journal._lock = -1
