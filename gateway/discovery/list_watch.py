"""Keeps the lists of a worker: reads those of the store, and asks a provider when it is this worker's turn.

::

    watch = ListWatch(store, metrics, settings, providers, use, lock=lock, tell=tell)
    found = await watch.begin()                # before the first request: at most `FIRST_WITHIN` seconds
    watch.start()
    found = await watch.with_lists(settings)   # a reload: the settings of the file with the models of the lists,
    watch.take(found)                          # and once they are used

One worker of all gateways with the store asks, and all read what it wrote: they serve the same models at the same
prices, and a provider gets one question in each interval. `use` is called when the models have changed, and calls
`take`. Without the store, each worker goes on with what it has. Sharp edge: a list that is too old is left out by each
process itself, by its own clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping

from msgspec import structs

from gateway.config.pattern_models import REASONS, SERVED
from gateway.config.settings import ProviderSettings, Settings
from gateway.discovery.asking import NoList, ask
from gateway.discovery.checked_lists import changed_prices, price_sides
from gateway.discovery.discovered import NO_LISTS, Discovered, KnownLists, discovered, usable_versions
from gateway.discovery.early_questions import changed_providers, early_id
from gateway.discovery.list_reader import read_lists
from gateway.discovery.stored_lists import (
    AFTER_FAILURE,
    NEVER_ASKED,
    NO_LIST,
    WITHOUT_LIST,
    ListState,
    end_turn,
    forget_states,
    is_same,
    list_id,
    prices_kept,
    read_list,
    read_states,
    take_early_turn,
    take_turn,
    write_list,
    write_state,
)
from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.metrics import Metrics
from gateway.store import Store

LOOK_EVERY = 5.0  # seconds
FIRST_LOOK_EVERY = 0.1  # seconds, before the first request
NAMED = 5  # models in a line of the log
FIRST_WITHIN = 3.0  # seconds that a start waits for the first lists
ENTRY_REASONS = ("repeated",)  # of entries that are no models
MODELS, LAST_SUCCESS = "gateway_discovered_models", "gateway_discovery_last_success_timestamp_seconds"
QUESTIONS = "gateway_discovery_questions"

Providers = Mapping[str, Mapping[int, object]]  # instances by name and number of the credential
Use = Callable[[Discovered], Awaitable[None]]
Side = Mapping[str, object]  # prices by model
Tell = Callable[[str, int, Side, Side], Awaitable[None]]  # a provider, how many prices changed, some before and after


class ListWatch:
    """The lists of one worker."""

    def __init__(
        self,
        store: Store,
        metrics: Metrics,
        settings: Settings,
        providers: Callable[[], Providers],
        use: Use,
        *,
        lock: asyncio.Lock,
        tell: Tell,
    ) -> None:
        """`lock` is held while a reload replaces the providers and the settings.

        `tell` gets changed prices before their list is stored; if it raises a GatewayError, the list is not stored.
        """
        self._store = store
        self._metrics = metrics
        self._providers = providers
        self._use = use
        self._changing = lock
        self._tell = tell
        self.current = Discovered(settings, settings)
        self._lists: KnownLists = NO_LISTS
        self._counted: set[str] = set()  # providers in the metrics
        self._early: set[str] = set()  # providers to ask after a reload, before the next question is due
        self._asking: dict[str, asyncio.Task[None]] = {}  # by provider
        self._task: asyncio.Task[None] | None = None
        self._look_now = asyncio.Event()

    async def begin(self) -> Discovered:
        """What to begin with: lists that the store has, and the first answers of providers that are quick."""
        if self._file.discovers:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(FIRST_WITHIN):
                    while not await self._has_all_lists():
                        await self._pause(FIRST_LOOK_EVERY)
        self.take(await self.with_lists(self._file))
        return self.current

    async def with_lists(self, file: Settings) -> Discovered:
        """The settings of a file with the models of the present lists."""
        return await asyncio.to_thread(discovered, file, self._lists, time.time())

    def take(self, found: Discovered) -> None:
        """These models are in use now."""
        self._early |= changed_providers(self.current.file, found.file)
        self.current = found
        self._count(found)
        self._look_now.set()

    @property
    def _file(self) -> Settings:
        return self.current.file

    def look(self) -> None:
        """Look now instead of at the next interval."""
        self._look_now.set()

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._look_forever())

    async def close(self) -> None:
        """Stop."""
        tasks = {*self._asking.values(), *([self._task] if self._task is not None else [])}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    # Looking ---------------------------------------------------------------------------------------------------------

    async def _look_forever(self) -> None:
        while True:
            await self._pause(LOOK_EVERY if self._file.discovers else None)
            try:
                await self._look()
                await self._use_changes()
            except GatewayError:
                continue  # without the store: the lists stay as they are
            except Exception as error:
                # Whatever a list or a plugin brings, calls of known models go on.
                gateway_log.error("the lists of models could not be used", exc_info=error)

    async def _pause(self, seconds: float | None) -> None:
        """Wait, at most until a question has ended or the settings have changed."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._look_now.wait()
        self._look_now.clear()

    async def _has_all_lists(self) -> bool:
        try:
            await self._look()
        except GatewayError:
            return False
        wanted = {list_id(name, one): one.keeps_list for name, one in self._file.providers.items() if one.discover}
        known = [(self._lists[name], keep) for name, keep in wanted.items() if name in self._lists]
        now = time.time()
        return len(known) == len(wanted) and all(one.is_usable(now, keep) or one.state.failed_at for one, keep in known)

    async def _look(self) -> None:
        """Read what has changed in the store, and begin the questions that are due."""
        settings = self._file
        if not settings.discovers:
            self._lists = NO_LISTS
            return
        self._lists = await read_lists(self._store, settings, self._lists)
        now = time.time()
        for name, provider in settings.providers.items():
            if not provider.discover:
                continue
            state = self._state(settings, name)
            self._metrics.set(LAST_SUCCESS, (name,), state.at)
            pause = _pause_after(state, provider)
            last = max(state.at, state.failed_at)
            # A moment in the future is of a clock that is ahead: the turn in the store decides.
            is_early = name in self._early
            if name not in self._asking and (is_early or not 0 <= now - last < pause - LOOK_EVERY):
                self._early.discard(name)
                task = asyncio.get_running_loop().create_task(self._ask_in_turn(settings, name, is_early=is_early))
                self._asking[name] = task
                task.add_done_callback(lambda _, name=name: self._asking.pop(name, None))  # type: ignore[misc]

    async def _use_changes(self) -> None:
        if usable_versions(self._file, self._lists, time.time()) != self.current.versions:
            found = await self.with_lists(self._file)
            gateway_log.info(
                "the lists of providers give %d models", len(found.settings.models) - len(found.file.models)
            )
            await self._use(found)

    def _state(self, settings: Settings, name: str) -> ListState:
        known = self._lists.get(list_id(name, settings.providers[name]))
        return known.state if known is not None else NEVER_ASKED

    def _count(self, found: Discovered) -> None:
        counts = {one.provider: one.counts() for one in found.providers}
        for name in {*self._counted, *counts}:
            for reason in (SERVED, *REASONS, *ENTRY_REASONS):
                self._metrics.set(MODELS, (name, reason), float(counts.get(name, {}).get(reason, 0)))
        for name in self._counted - counts.keys():
            self._metrics.set(LAST_SUCCESS, (name,), 0.0)
        self._counted = set(counts)

    # Asking ----------------------------------------------------------------------------------------------------------

    async def _ask_in_turn(self, settings: Settings, name: str, *, is_early: bool = False) -> None:
        provider = settings.providers[name]
        own, stage = list_id(name, provider), "is not asked for"
        try:
            early = is_early and await take_early_turn(self._store, own, early_id(settings, name))
            if not early and not await take_turn(self._store, own):
                return
            stage = "is not stored"
            state = await self._ask(settings, name, own)
            stage = "is stored; the next question may come early"
            await end_turn(self._store, own, _pause_after(state, provider) - LOOK_EVERY if state is not None else 1.0)
            self._look_now.set()
            await forget_states(self._store, await read_states(self._store), time.time())
        except GatewayError as error:
            gateway_log.warning("the list of models of %s %s: %s", name, stage, error)
        except Exception as error:
            # The edge of a background task: the next question may end otherwise.
            gateway_log.error("the list of models of %s could not be read", name, exc_info=error)

    async def _ask(self, settings: Settings, name: str, own: str) -> ListState | None:
        """Ask a provider and write its list; its state then, or None if a reload has replaced the provider."""
        provider, now = settings.providers[name], time.time()
        instances = self._providers().get(name) or {}
        state = (await read_states(self._store)).get(own, NEVER_ASKED)
        before = await read_list(self._store, own)
        instance = next(iter(instances.values()), None)
        try:
            checked = await ask(name, instance, provider, before or NO_LIST, now=now)
            if not await self._is_of(name, own, instance):
                return None  # it may be the list of another address
        except NoList as error:
            self._metrics.inc(QUESTIONS, (name, "failed"))
            failed = structs.replace(state, failed_at=now, error=str(error))
            await write_state(self._store, own, failed)
            return failed
        self._metrics.inc(QUESTIONS, (name, "ok"))
        fresh = ListState(
            version=state.version if is_same(checked.found, before, state.version) else secrets.token_hex(8),
            at=now,
            listed=len(checked.found.models),
            left_out=checked.left_out,
        )
        changed = changed_prices(before or NO_LIST, checked.found)
        if changed:
            # Before the list: if the store fails in between, the next question finds the change and tells it again.
            await self._tell(name, len(changed), *price_sides(changed, before or NO_LIST, checked.found))
        await write_list(self._store, own, checked.found, fresh, keep=prices_kept(provider))
        if changed:
            named = ", ".join(changed[:NAMED])
            gateway_log.info("prices in the list of %s changed: %d, such as %s", name, len(changed), named)
        return fresh

    async def _is_of(self, name: str, own: str, instance: object) -> bool:
        """Whether the instance is that of the settings which the list is named after."""
        async with self._changing:
            provider = self._file.providers.get(name)
            instances = (self._providers().get(name) or {}).values()
            return provider is not None and list_id(name, provider) == own and any(one is instance for one in instances)


def _pause_after(state: ListState, provider: ProviderSettings) -> float:
    """Seconds from the last question to the next one."""
    if state.failed_at <= state.at:
        return provider.asks_every
    return min(AFTER_FAILURE if state.version else WITHOUT_LIST, provider.asks_every)
