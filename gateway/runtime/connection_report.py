"""Tells the operator that a port is at its limit of client connections: a metric, and a log line now and then."""

from __future__ import annotations

import time
from typing import Final

from gateway.http_server.connection_limit import Dropped
from gateway.log import gateway_log
from gateway.metrics import Metrics

LOG_EVERY: Final = 10.0  # seconds


class ConnectionReport:
    """Called by the HTTP server of a `port` about twice a second while it is at the limit."""

    def __init__(self, metrics: Metrics, most: int, port: str) -> None:
        self._metrics = metrics
        self._most = most
        self._port = port
        self._idle = self._unfinished = self._refused = 0  # since the last log line
        self._logged = float("-inf")

    def __call__(self, dropped: Dropped) -> None:
        """Count what was dropped in one tick."""
        for kind in ("idle", "unfinished", "refused"):
            if count := getattr(dropped, kind):
                self._metrics.inc("gateway_connections_dropped", (self._port, kind), count)
        self._idle += dropped.idle
        self._unfinished += dropped.unfinished
        self._refused += dropped.refused
        now = time.monotonic()
        if now - self._logged < LOG_EVERY:
            return
        gateway_log.warning(
            "at the limit of %d connections (%s): closed %d idle, %d unfinished, refused %d new ones; %s has %d",
            self._most,
            self._port,
            self._idle,
            self._unfinished,
            self._refused,
            dropped.address,
            dropped.connections,
        )
        self._logged, self._idle, self._unfinished, self._refused = now, 0, 0, 0
