"""Runs the hooks that follow the calls off the event loop: each plugin has a thread of its own, and a bounded queue.

::

    hooks = HookThreads(plugins, on_lost=…)
    hooks.call_settled(record)          # queues the record for every plugin, without waiting
    await hooks.shutdown(gateway)       # after the last call: the rest of the queues, then the `shutdown` hooks

A plugin that blocks delays only itself: up to `QUEUED` of its records wait, later ones are lost, counted and logged.
Sharp edge: the threads do not keep the process. A hook that does not return within `SHUTDOWN_WITHIN` seconds at the end
is left behind.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING

from gateway.billing.call_record import CallRecord
from gateway.log import PluginLog, WarningLimit
from gateway.plugins.loader import Plugins

if TYPE_CHECKING:
    from gateway.plugins.host import Gateway

QUEUED = 1000  # records of one plugin that wait; the one that its hook has is not among them
SHUTDOWN_WITHIN = 2.0  # seconds for the rest of all queues and the `shutdown` hooks

Job = tuple[str, Callable[[], object]]  # the hook's name, and its call


class HookThread:
    """The thread of one plugin. It starts with the first job."""

    def __init__(self, plugin: str, log: PluginLog) -> None:
        self.plugin = plugin
        self._log = log
        self._jobs: SimpleQueue[Job | None] = SimpleQueue()
        self._started = False
        self.ended: Future[None] = Future()

    @property
    def waiting(self) -> int:
        """Jobs that wait."""
        return self._jobs.qsize()

    def put(self, hook: str, call: Callable[[], object]) -> None:
        """Queue a job. Only the event loop's thread calls this, so a check of `waiting` before it stays true."""
        self._jobs.put((hook, call))
        if not self._started:
            self._started = self.ended.set_running_or_notify_cancel()
            threading.Thread(target=self._run, name=f"hooks of {self.plugin}", daemon=True).start()

    def end(self) -> None:
        """End the thread after the jobs that wait."""
        if self._started:
            self._jobs.put(None)
        else:
            self.ended.set_result(None)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            hook, call = job
            try:
                call()
            except BaseException as error:
                # Third-party code may raise anything; the call was settled before and stays settled.
                self._log.hook_failed(self.plugin, hook, error)
            del job, call
        self.ended.set_result(None)


class HookThreads:
    """The threads of all plugins that have such a hook."""

    def __init__(self, plugins: Plugins, *, on_lost: Callable[[str, int], None]) -> None:
        self._log = plugins.log
        self._on_lost = on_lost
        self._threads: dict[str, HookThread] = {}
        self._settled = [(self._thread(call.plugin), call) for call in plugins.hook_calls("call_settled")]
        self._shutdown = [(self._thread(call.plugin), call) for call in plugins.hook_calls("shutdown")]
        self._warnings = WarningLimit()
        for thread, _ in self._settled:
            on_lost(thread.plugin, 0)  # its counter begins

    def _thread(self, plugin: str) -> HookThread:
        thread = self._threads.get(plugin)
        if thread is None:
            thread = self._threads[plugin] = HookThread(plugin, self._log)
        return thread

    @property
    def observed(self) -> bool:
        """Whether any plugin has a `call_settled` hook."""
        return bool(self._settled)

    def call_settled(self, record: CallRecord) -> None:
        """Queue a record for every plugin; one with a full queue loses it."""
        for thread, call in self._settled:
            if thread.waiting < QUEUED:
                thread.put("call_settled", call.with_arguments(record=record))
            else:
                self._lost(thread.plugin)

    def _lost(self, plugin: str) -> None:
        self._on_lost(plugin, 1)
        lost = self._warnings.due(plugin, time.monotonic())
        if lost:
            self._log.records_lost(plugin, lost)

    async def shutdown(self, gateway: Gateway) -> None:
        """Run what waits, then the `shutdown` hooks; at most `SHUTDOWN_WITHIN` seconds for all plugins together."""
        if not self._threads:
            return
        for thread, call in self._shutdown:
            thread.put("shutdown", call.with_arguments(gateway=gateway))
        ended = {}
        for thread in self._threads.values():
            thread.end()
            ended[asyncio.wrap_future(thread.ended)] = thread
        _, late = await asyncio.wait(ended, timeout=SHUTDOWN_WITHIN)
        for future in late:
            future.cancel()  # the thread may end after the event loop
            thread = ended[future]
            ends = 1 + sum(other is thread for other, _ in self._shutdown)
            self._log.hook_left(thread.plugin, SHUTDOWN_WITHIN)
            if lost := max(0, thread.waiting - ends):
                self._on_lost(thread.plugin, lost)
                self._log.records_lost(thread.plugin, lost)
