"""Runs one hook within its limits: its time, its runs at once, a quarantine while it keeps failing.

::

    value = await runner.run("check_call", call, accept, account=…)   # or the hook's refusal, or HookFailed

A hook may refuse a call by an error of the tree below 500. Everything else that it raises is a failure, like a run that
takes too long and a value that `accept` does not take. A run that does not end when it is cancelled is watched like a
stuck task of a provider, and keeps its place among the runs at once, so that such runs cannot fill the memory. Sharp
edge: a hook that blocks the event loop delays all calls; the watchdog then quarantines it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

from gateway.config.settings import HookSettings
from gateway.errors import GatewayError, ProviderFailed, UpstreamError
from gateway.http_client.send_state import SendState, track
from gateway.log import PluginLog, WarningLimit
from gateway.metrics import Metrics
from gateway.plugins.hook import HOOK_CAPABILITIES, Hook
from gateway.plugins.isolation import is_plugin_error
from gateway.plugins.upstream_errors import clean_error
from gateway.routing.circuit_breaker import Circuit
from gateway.routing.circuit_registry import HOOKS, CircuitRegistry
from gateway.routing.stuck_tasks import StuckTasks

T = TypeVar("T")

PASSED, REPLACED, REFUSED, ANSWERED = "passed", "replaced", "refused", "answered"
#: Outcomes of a run that failed.
FAILED, TIMEOUT, INVALID, BUSY, QUARANTINED, ABSENT = "failed", "timeout", "invalid", "busy", "quarantined", "absent"

Accept = Callable[[Any], tuple[T, str]]  # the value to use, and its outcome; ValueError for an invalid one


class HookFailed(Exception):
    """The hook gave no result; `outcome` says why."""

    def __init__(self, hook: str, outcome: str) -> None:
        super().__init__(f"hook {hook}: {outcome}")
        self.outcome = outcome


class _Raised:
    """What a hook raised."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


class HookRunner:
    """One table of [hooks.NAME]; `hook` is None if it cannot be created."""

    def __init__(
        self,
        name: str,
        settings: HookSettings,
        hook: Hook | None,
        *,
        does: frozenset[str],
        health: CircuitRegistry,
        stuck: StuckTasks,
        metrics: Metrics,
        log: PluginLog,
    ) -> None:
        self.name, self.settings, self.hook = name, settings, hook
        self.does = does  # which of HOOK_CAPABILITIES
        self.running = 0
        self._health, self._stuck, self._metrics, self._log = health, stuck, metrics, log
        self._warnings = WarningLimit()
        for kind in does:
            for outcome in OUTCOMES:
                metrics.inc("gateway_hook_runs", (name, kind, outcome), 0)  # its counters begin

    @property
    def is_open(self) -> bool:
        """Whether calls go on without it while it fails."""
        return self.settings.on_failure == "open"

    @property
    def circuit(self) -> Circuit:
        """Its quarantine."""
        return self._health.provider(HOOKS + self.name)

    async def run(
        self, kind: str, call: Callable[[Any], Awaitable[Any]], accept: Accept[T], *, account: str, digest: int = 0
    ) -> tuple[T, str]:
        """The accepted value and its outcome; the GatewayError of a refusal, or HookFailed.

        `call` gets the hook, which has the capability `kind`. `account` and `digest` are those of the request.
        """
        circuit, started = self.circuit, time.monotonic()
        if outcome := self._unready(circuit, kind, started):
            self._count(kind, outcome)
            raise HookFailed(self.name, outcome)
        circuit.enter(started)
        try:
            found = await self._result(call, circuit)
        except BaseException:
            circuit.abandoned()
            raise
        now = time.monotonic()
        self._metrics.observe("gateway_hook_seconds", (self.name,), now - started)
        error, outcome = (found.error, FAILED) if isinstance(found, _Raised) else (None, TIMEOUT)
        if isinstance(error, GatewayError) and error.status < 500 and not isinstance(error, UpstreamError):
            self._end(circuit, now - started, account)
            self._count(kind, REFUSED)
            clean_error(error, self.hook.secret_texts if self.hook is not None else ())
            raise error
        if found is not self and error is None:
            try:
                value, outcome = accept(found)
            except ValueError as problem:
                error, outcome = problem, INVALID
            else:
                self._end(circuit, now - started, account)
                self._count(kind, outcome)
                return value, outcome
        circuit.leave()
        circuit.failed(ProviderFailed(), now, account=account, digest=digest, of_plugin=True)
        self._count(kind, outcome)
        self._warn(kind, outcome, error, now)
        raise HookFailed(self.name, outcome)

    def _unready(self, circuit: Circuit, kind: str, now: float) -> str:
        """Why it cannot run now; empty if it can."""
        if self.hook is None or not isinstance(self.hook, HOOK_CAPABILITIES[kind]):
            return ABSENT
        if not circuit.ready(now):
            return QUARANTINED
        return BUSY if self.running >= self.settings.concurrency else ""

    async def _result(self, call: Callable[[Any], Awaitable[Any]], circuit: Circuit) -> Any:
        """What the hook returned or `_Raised`; this runner itself if its time was over."""
        task = asyncio.get_running_loop().create_task(_contained(call, self.hook))
        self.running += 1
        task.add_done_callback(self._ended)
        try:
            await asyncio.wait((task,), timeout=self.settings.timeout)
            return task.result() if task.done() else self
        finally:
            if not task.done():
                task.cancel()
                self._stuck.watch(task, circuit)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.running -= 1
        if not task.cancelled():
            task.exception()

    def _end(self, circuit: Circuit, seconds: float, account: str) -> None:
        circuit.succeeded(time.monotonic(), seconds, account)
        circuit.leave()

    def _count(self, kind: str, outcome: str) -> None:
        self._metrics.inc("gateway_hook_runs", (self.name, kind, outcome))

    def _warn(self, kind: str, outcome: str, error: BaseException | None, now: float) -> None:
        """Log failures, once in a while for each outcome."""
        if failures := self._warnings.due(outcome, now):
            self._log.check_failed(self.name, kind, outcome, error, failures)


async def _contained(call: Callable[[Any], Awaitable[Any]], hook: Any) -> Any:
    track(SendState())  # requests of the hook are none of the call's attempts
    try:
        return await call(hook)
    except BaseException as error:
        # Third-party code may raise anything.
        if not is_plugin_error(error):
            raise
        return _Raised(error)


#: The outcomes that the metrics of a hook may show.
OUTCOMES: Final = (PASSED, REPLACED, REFUSED, ANSWERED, FAILED, TIMEOUT, INVALID, BUSY, QUARANTINED, ABSENT)
