"""The metrics of one machine: the totals over its processes, and what the supervisor itself knows.

`watch` measures beside the scrapes: a hanging file system delays no answer of the side port.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import Sequence
from pathlib import Path

from msgspec import structs
from prometheus_client.core import Metric

from gateway import log
from gateway.config.settings import Settings
from gateway.config.shared_configuration import configuration_hash
from gateway.metrics import Metrics, Totals, decode_delta
from gateway.runtime.known_series import known_series
from gateway.runtime.store_watch import StoreWatch
from gateway.runtime.worker_process import WorkerProcess
from gateway.runtime.worker_recovery import WorkerRecovery

DISK_EVERY = 10.0  # seconds between two looks at the file system of data_dir
SUPERVISOR = "supervisor"
CONFIGURATION = "supervisor: configuration"  # another source, so that an older configuration can be forgotten


class MachineMetrics:
    """Counts of all processes of one gateway."""

    def __init__(self, settings: Settings) -> None:
        self.own = Metrics()  # of the supervisor
        self.own.build_info()
        self._totals = Totals()
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
        if recovery is not None:
            own.journal_backlog(*structs.astuple(recovery.backlog))
        self._merge(own, SUPERVISOR)

    async def watch_disk(self, folder: Path) -> None:
        """Measure the file system of a folder until cancelled."""
        while True:
            with contextlib.suppress(OSError):  # the folder is away, and so is what was measured last
                usage = await asyncio.to_thread(shutil.disk_usage, folder)
                self.own.set("gateway_data_dir_free_bytes", (), float(usage.free))
                self.own.set("gateway_data_dir_size_bytes", (), float(usage.total))
            await asyncio.sleep(DISK_EVERY)

    def _merge(self, metrics: Metrics, source: str) -> None:
        if (delta := metrics.drain()) is not None:
            self._totals.merge(delta, source=source)
