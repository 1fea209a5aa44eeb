"""The hooks of a worker: one instance for each table of [hooks], made again when its settings change.

`of("check_call", model.hooks)` gives those of a model that do it, in the order in which the model names them. Sharp
edge: a hook that cannot be created at the start is there, too, and each of its runs fails, so that a model whose hook
is missing is not served without it unless the hook says `on_failure = "open"`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, Final

from gateway.config.settings import Settings
from gateway.config.toml_reader import SettingsError, SettingsProblem
from gateway.hooks.runner import HookRunner
from gateway.http_client.upstream import Upstream
from gateway.log import PluginLog
from gateway.metrics import Metrics
from gateway.plugins.hook import HOOK_CAPABILITIES, Hook, hook_capabilities
from gateway.plugins.instances import build_hook
from gateway.plugins.isolation import CLOSE_WITHIN, end_within
from gateway.plugins.loader import Plugins
from gateway.routing.circuit_registry import HOOKS, CircuitRegistry
from gateway.routing.stuck_tasks import StuckTasks

#: Seconds for which a replaced hook is kept for the calls that use it: the longest time of a call.
RETIRE_AFTER: Final = 3600.0


class CallHooks:
    """The hooks by name."""

    def __init__(
        self,
        plugins: Plugins,
        upstream: Upstream,
        *,
        health: CircuitRegistry,
        stuck: StuckTasks,
        metrics: Metrics,
        log: PluginLog,
    ) -> None:
        self.runners: dict[str, HookRunner] = {}
        self._plugins, self._upstream = plugins, upstream
        self._health, self._stuck, self._metrics, self._log = health, stuck, metrics, log
        self._retired: list[Hook] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._after: set[asyncio.Task[None]] = set()

    def of(self, kind: str, names: Iterable[str]) -> list[HookRunner]:
        """Those of these hooks that do `kind`."""
        found = (self.runners.get(name) for name in names)
        return [runner for runner in found if runner is not None and kind in runner.does]

    @property
    def instances(self) -> dict[str, Hook]:
        """The created hooks, by the names of their circuits."""
        return {HOOKS + name: runner.hook for name, runner in self.runners.items() if runner.hook is not None}

    async def start(self, settings: Settings) -> None:
        """Create the hooks before the first call; one that cannot be created fails at each call."""
        self.runners, _ = await self._made(settings)

    async def prepare(self, settings: Settings) -> dict[str, HookRunner]:
        """The hooks of new settings, to be given to `use` or `drop`; SettingsError if one cannot be created."""
        made, reasons = await self._made(settings)
        if reasons:
            await self.drop(made)
            raise SettingsError(
                [
                    SettingsProblem(settings.file_of("hooks", name), f"hooks.{name}", reason)
                    for name, reason in reasons.items()
                ]
            )
        return made

    def use(self, made: dict[str, HookRunner]) -> None:
        """Use these hooks from the next call on."""
        before, self.runners = self.runners, made
        for hook in _apart(before, made):
            self._retired.append(hook)
            asyncio.get_running_loop().call_later(RETIRE_AFTER, self._release, hook)

    async def drop(self, made: dict[str, HookRunner]) -> None:
        """Close hooks that are not used."""
        for hook in _apart(made, self.runners):
            await self._close(hook)

    def after_call(self, work: Coroutine[Any, Any, None]) -> None:
        """Do `work` without a call that waits for it; the limits of the runs bound how much of it there is."""
        task = asyncio.get_running_loop().create_task(work)
        self._after.add(task)
        task.add_done_callback(self._after.discard)

    async def close(self) -> None:
        """Close every hook; after the last call."""
        if self._after:
            await asyncio.wait(self._after, timeout=CLOSE_WITHIN)
        for task in self._after:
            task.cancel()
        for hook in [*self.instances.values(), *self._retired]:
            await self._close(hook)

    async def _made(self, settings: Settings) -> tuple[dict[str, HookRunner], dict[str, str]]:
        """The runners of these settings, unchanged ones as they are, and the reasons of hooks that are not created."""
        made: dict[str, HookRunner] = {}
        reasons: dict[str, str] = {}
        for name, wanted in settings.hooks.items():
            old = self.runners.get(name)
            if old is not None and old.settings == wanted and old.hook is not None:
                made[name] = old
                continue
            hook, reason = await build_hook(name, settings, plugins=self._plugins, upstream=self._upstream)
            if reason:
                reasons[name] = reason
            kind = self._plugins.hooks.get(wanted.plugin)
            does = frozenset(HOOK_CAPABILITIES) - {"authenticate"} if kind is None else hook_capabilities(kind)
            made[name] = HookRunner(
                name,
                wanted,
                hook,
                does=frozenset(does),
                health=self._health,
                stuck=self._stuck,
                metrics=self._metrics,
                log=self._log,
            )
        return made, reasons

    def _release(self, hook: Hook) -> None:
        if hook in self._retired:
            self._retired.remove(hook)
            task = asyncio.ensure_future(self._close(hook))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _close(self, hook: Hook) -> None:
        try:
            await end_within(CLOSE_WITHIN, hook.close())
        except BaseException as error:
            # Third-party clean-up may raise anything; the other parts must still be closed.
            if isinstance(error, asyncio.CancelledError | KeyboardInterrupt):
                raise
            self._log.provider_failed(hook.name, error)


def _apart(some: dict[str, HookRunner], others: dict[str, HookRunner]) -> list[Hook]:
    """The hooks of `some` that `others` do not have."""
    stay = {id(runner.hook) for runner in others.values()}
    return [runner.hook for runner in some.values() if runner.hook is not None and id(runner.hook) not in stay]
