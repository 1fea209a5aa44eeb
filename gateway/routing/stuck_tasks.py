"""Tasks that a plugin does not let end after their cancellation: cancelled again, counted, and held against it.

Python cannot end such a task. Its call is settled and answered without it. After `STUCK_AFTER` seconds the task counts
as a failure of the plugin's code. So a provider or a hook that keeps doing this is quarantined and cannot fill the
memory.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from gateway.log import PluginLog
from gateway.metrics import Metrics
from gateway.routing.circuit_breaker import Circuit

STUCK_AFTER = 5.0  # seconds; a provider may clean up meanwhile


class StuckTasks:
    """The cancelled tasks of one worker that have not ended."""

    def __init__(self, metrics: Metrics, log: PluginLog) -> None:
        self._metrics = metrics
        self._log = log
        self._tasks: dict[asyncio.Task[Any], asyncio.TimerHandle] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def watch(self, task: asyncio.Task[Any], circuit: Circuit) -> None:
        """`task` was cancelled; the code of the circuit's provider or hook runs in it."""
        if task.done() or task in self._tasks:
            return
        self._tasks[task] = asyncio.get_running_loop().call_later(STUCK_AFTER, self._stuck, task, circuit)
        task.add_done_callback(self._ended)

    def _stuck(self, task: asyncio.Task[Any], circuit: Circuit) -> None:
        provider = circuit.key.provider
        self._log.provider_stuck(provider, STUCK_AFTER)
        self._metrics.inc("gateway_stuck_tasks", (provider,))
        circuit.stalled(time.monotonic())
        self._again(task)

    def _again(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        self._tasks[task] = asyncio.get_running_loop().call_later(STUCK_AFTER, self._again, task)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.pop(task).cancel()

    def close(self) -> None:
        """Stop watching."""
        for timer in self._tasks.values():
            timer.cancel()
