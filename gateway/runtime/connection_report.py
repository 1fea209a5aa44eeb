"""Tells the operator that a worker is at its limit of client connections: a metric, and a log line now and then."""

from __future__ import annotations

import time
from typing import Final

from gateway.log import gateway_log
from gateway.metrics import Metrics

LOG_EVERY: Final = 10.0  # seconds


class ConnectionReport:
    """Called by the HTTP server about twice a second while it is at the limit."""

    def __init__(self, metrics: Metrics, most: int) -> None:
        self._metrics = metrics
        self._most = most
        self._closed = self._refused = 0  # since the last log line
        self._logged = float("-inf")

    def __call__(self, closed: int, refused: int) -> None:
        """Count `closed` idle connections and `refused` new ones."""
        for kind, count in (("idle", closed), ("refused", refused)):
            if count:
                self._metrics.inc("gateway_connections_dropped", (kind,), count)
        self._closed += closed
        self._refused += refused
        now = time.monotonic()
        if now - self._logged < LOG_EVERY:
            return
        gateway_log.warning(
            "at the limit of %d connections: closed %d idle ones, refused %d new ones",
            self._most,
            self._closed,
            self._refused,
        )
        self._logged, self._closed, self._refused = now, 0, 0
