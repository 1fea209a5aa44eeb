"""The queues in which the system keeps new connections to `/v1` until a worker accepts them.

A full queue drops the attempt to connect; the client repeats it after a second, then after three and seven.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from gateway.log import gateway_log
from gateway.metrics import Metrics

LOG_EVERY: Final = 10.0  # seconds
SOMAXCONN: Final = Path("/proc/sys/net/core/somaxconn")
#: Of Linux: an array of nine numbers, of which the last one counts what the socket has dropped.
SO_MEMINFO, NUMBERS, DROPS = 55, 9, 8


def warn_of_shorter_queue(wanted: int, limit: Path = SOMAXCONN) -> None:
    """Log if the system makes the queue shorter than the setting says."""
    try:
        most = int(limit.read_text())
    except (OSError, ValueError):  # not Linux, or a sandbox
        return
    if most < wanted:
        gateway_log.warning(
            "server.limits.accept_queue is %d, but the system allows %d: raise net.core.somaxconn", wanted, most
        )


def dropped_by(sock: socket.socket) -> int:
    """How many connections the system has dropped because the socket's queue was full; 0 where it does not tell."""
    try:
        numbers = sock.getsockopt(socket.SOL_SOCKET, SO_MEMINFO, 4 * NUMBERS)
        return int(struct.unpack(f"{NUMBERS}I", numbers)[DROPS])
    except (OSError, struct.error):
        return 0


class AcceptQueues:
    """Counts dropped connections of all listening sockets, and logs them."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._counts: dict[socket.socket, int] = {}  # of the sockets at the last look
        self._unlogged = 0
        self._logged = float("-inf")

    def look(self, sockets: Iterable[socket.socket]) -> None:
        """Count what was dropped since the last look."""
        counts = {sock: dropped_by(sock) for sock in sockets if sock.fileno() >= 0}
        dropped = sum(count - self._counts.get(sock, 0) for sock, count in counts.items())
        self._counts = counts
        if not dropped:
            return
        self._metrics.inc("gateway_accept_queue_drops", (), dropped)
        self._unlogged += dropped
        now = time.monotonic()
        if now - self._logged >= LOG_EVERY:
            gateway_log.warning("the queue of new connections was full: %d were dropped", self._unlogged)
            self._logged, self._unlogged = now, 0
