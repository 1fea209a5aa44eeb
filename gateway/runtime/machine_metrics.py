"""The metrics of one machine: the totals over its processes, and what the supervisor itself knows.

`watch` measures beside the scrapes: a hanging file system delays no answer of the side port. `state` is what the
consoles of all machines know of this one.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import structs
from prometheus_client.core import Metric

from gateway import log
from gateway.admin.machine_state import MachineState, ProcessState, Resource
from gateway.config.settings import Settings
from gateway.config.shared_configuration import configuration_hash
from gateway.errors import GatewayError
from gateway.metrics import Metrics, Totals, decode_delta
from gateway.metrics.process import ProcessMetrics
from gateway.metrics.readings import Rates, Readings
from gateway.runtime.known_series import known_series
from gateway.runtime.reloads import Reloads, Result
from gateway.runtime.store_watch import StoreWatch
from gateway.runtime.worker_process import WorkerProcess
from gateway.runtime.worker_recovery import WorkerRecovery
from gateway.store import Store

MEASURE_EVERY = 10  # seconds between two looks at the file system of data_dir, and at the store's memory
RESTARTED = ("worker", "store", "console", "importer", "batches")
SUPERVISOR = "supervisor"
CONFIGURATION = "supervisor: configuration"  # another source, so that an older configuration can be forgotten


class MachineMetrics:
    """Counts of all processes of one gateway."""

    def __init__(self, settings: Settings) -> None:
        self.own = Metrics()  # of the supervisor
        self.own.build_info()
        self.own.set("gateway_reload_successful", (), 1.0)
        self._totals = Totals()
        self._process = ProcessMetrics(self.own, SUPERVISOR)
        self._cpu = Rates()
        self._started = time.time()
        self.use(settings)

    def use(self, settings: Settings) -> None:
        """A configuration is in use from now on: its counters begin."""
        self._totals.begin(known_series(settings), most_models=settings.metrics.max_models)
        self._totals.forget(CONFIGURATION)
        info = Metrics()
        info.set("gateway_configuration_info", (configuration_hash(settings),), 1.0)
        self._merge(info, CONFIGURATION)

    def certificate(self, ends: float, is_refused: bool) -> None:
        """Set the end of the certificate in force, and whether another one was refused since."""
        self.own.set("gateway_tls_certificate_expiry_timestamp_seconds", (), ends)
        self.own.set("gateway_tls_renewal_refused", (), float(is_refused))

    def add(self, source: str, counts: bytes) -> None:
        """Add what a process has sent."""
        self._totals.merge(decode_delta(counts), source=source)

    def forget(self, source: str) -> None:
        """Drop the gauges of a process that ended."""
        self._totals.forget(source)

    def text(self, accept: str) -> tuple[bytes, str]:
        """What was measured, in the form that an Accept header asks for, and its Content-Type."""
        return self._totals.text(accept)

    def families(self) -> list[Metric]:
        """The same as objects."""
        return list(self._totals.collect())

    def measure(
        self, workers: Sequence[WorkerProcess], recovery: WorkerRecovery | None, watch: StoreWatch | None
    ) -> None:
        """Add what the supervisor itself knows now."""
        own = self.own
        own.log_lines_dropped(log.stderr.take_dropped())
        own.set("gateway_workers", (), sum(worker.ready for worker in workers))
        own.set("gateway_store_up", (), float(watch is not None and watch.is_up))
        own.store_errors()
        if recovery is not None:
            own.journal_backlog(*structs.astuple(recovery.backlog))
        self._merge(own, SUPERVISOR)

    async def watch(self, folder: Path, store: Store) -> None:
        """Measure this process, the file system of a folder, and the memory of the store until cancelled."""
        loop, again = asyncio.get_running_loop(), 0
        while True:
            if not again:
                again = MEASURE_EVERY
                await self._measure(folder, store)
            due, again = loop.time() + 1.0, again - 1
            await asyncio.sleep(1.0)
            self._process.note(max(0.0, loop.time() - due))

    async def _measure(self, folder: Path, store: Store) -> None:
        with contextlib.suppress(OSError):  # the folder is away, and so is what was measured last
            usage = await asyncio.to_thread(shutil.disk_usage, folder)
            self.own.set("gateway_data_dir_free_bytes", (), float(usage.free))
            self.own.set("gateway_data_dir_size_bytes", (), float(usage.total))
        with contextlib.suppress(GatewayError):
            memory = await store.memory()
            self.own.capacity("store_bytes", memory.used, memory.limit)

    def reloaded(self, result: Result) -> None:
        """What became of a reload."""
        self.own.inc("gateway_reloads", (result,))
        self.own.set("gateway_reload_successful", (), float(result == "used"))

    def state(self, workers: Sequence[WorkerProcess], watch: StoreWatch | None, reloads: Reloads) -> MachineState:
        """What the consoles of all machines show of this gateway."""
        self._merge(self.own, SUPERVISOR)
        cpu, names = self._cpu.read(self._totals.counters("gateway_process_cpu_seconds")), Readings(self._totals)
        return MachineState(
            reports=True,
            started=self._started,
            workers=sum(worker.ready for worker in workers),
            workers_wanted=len(workers),
            in_flight=int(names.total("gateway_in_flight")),
            upstream_calls={one: int(n) for one, n in names.by_label("gateway_upstream_calls").items() if n},
            processes=_processes(names, cpu),
            resources=_resources(names),
            reload_problem=reloads.problem,
            reload_at=reloads.problem_at,
            store_up=watch is not None and watch.is_up,
            database_up=names.total("gateway_database_up", missing=1.0) > 0,
            importer_lag=names.total("gateway_importer_lag_seconds"),
            importer_lines=int(names.total("gateway_importer_lag_lines")),
            importer_blocked=int(names.total("gateway_importer_blocked")),
            journal_age=names.total("gateway_journal_backlog_age_seconds"),
            journal_records=int(names.total("gateway_journal_backlog_records")),
            refused_settlements=int(names.total("gateway_refused_settlements")),
            below_floor=int(names.by_label("gateway_accounts_below").get("floor", 0)),
            models_unavailable=names.unavailable_models(),
            restarts=sum(int(sum(self._totals.counters(f"gateway_{one}_restarts").values())) for one in RESTARTED),
        )

    def _merge(self, metrics: Metrics, source: str) -> None:
        if (delta := metrics.drain()) is not None:
            self._totals.merge(delta, source=source)


def _processes(names: Readings, cpu: Mapping[str, float]) -> tuple[ProcessState, ...]:
    resident, lags = (names.by_label(f"gateway_process_{name}") for name in ("resident_bytes", "loop_lag_seconds"))
    used, most = (names.by_label(f"gateway_process_{name}") for name in ("descriptors", "descriptors_limit"))
    return tuple(
        ProcessState(
            name,
            cpu=round(cpu.get(name, 0.0), 3),
            resident=int(resident.get(name, 0)),
            descriptors=int(used.get(name, 0)),
            descriptors_limit=int(most.get(name, 0)),
            lag=lags[name],
        )
        for name in sorted(lags)
    )


def _resources(names: Readings) -> tuple[Resource, ...]:
    used, limits = (names.by_label(f"gateway_capacity_{name}") for name in ("used", "limit"))
    size, free = (names.total(f"gateway_data_dir_{name}_bytes") for name in ("size", "free"))
    found = [Resource(name, used[name], limits.get(name, 0.0)) for name in sorted(used)]
    return (*found, *([Resource("data_dir_bytes", size - free, size)] if size else []))
