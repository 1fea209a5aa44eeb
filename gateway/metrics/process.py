"""What a process of the gateway uses of the machine: processor, memory, file descriptors, and the lag of its loop.

Each process notes its own about once a second, beside its work. What the system does not report has no sample.
"""

from __future__ import annotations

import contextlib
import os
import resource
import time
from pathlib import Path

from gateway.metrics import Metrics

DESCRIPTORS_EVERY = 10.0  # seconds: on older systems they are counted one by one

_STATM = Path("/proc/self/statm")
_DESCRIPTORS = Path("/proc/self/fd"), Path("/dev/fd")


class ProcessMetrics:
    """The metrics of this process under a name such as `worker-0`."""

    def __init__(self, metrics: Metrics, name: str) -> None:
        self._metrics = metrics
        self._labels = (name,)
        self._cpu = 0.0  # seconds that are counted
        self._descriptors_at = float("-inf")

    def note(self, lag: float) -> None:
        """Note what the process uses now; `lag`: seconds by which its event loop is late."""
        metrics, labels, cpu = self._metrics, self._labels, time.process_time()
        metrics.inc("gateway_process_cpu_seconds", labels, cpu - self._cpu)
        self._cpu = cpu
        if memory := resident_bytes():
            metrics.set("gateway_process_resident_bytes", labels, float(memory))
        metrics.set("gateway_process_loop_lag_seconds", labels, round(lag, 4))
        now = time.monotonic()
        if now - self._descriptors_at >= DESCRIPTORS_EVERY:
            self._descriptors_at = now
            if used := open_descriptors():
                metrics.set("gateway_process_descriptors", labels, float(used))
            metrics.set(
                "gateway_process_descriptors_limit", labels, float(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
            )


def resident_bytes() -> int:
    """Resident bytes of this process; 0 if /proc does not report them."""
    try:
        return int(_STATM.read_bytes().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def open_descriptors() -> int:
    """Open file descriptors of this process; 0 if the system does not report them."""
    for folder in _DESCRIPTORS:
        with contextlib.suppress(OSError):
            return folder.stat().st_size if _tells_number(folder) else sum(1 for _ in folder.iterdir())
    return 0


def _tells_number(folder: Path) -> bool:
    """Whether the size of the folder is the number of its entries, as since Linux 6.2."""
    return folder.parts[1] == "proc" and folder.stat().st_size > 0
