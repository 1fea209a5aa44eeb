"""The lists in a process that only reads them: the console, and commands."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from msgspec import structs

from gateway.config.settings import Settings
from gateway.discovery.discovered import NO_LISTS, Discovered, KnownList, KnownLists, discovered, usable_versions
from gateway.discovery.stored_lists import NEVER_ASKED, ListState, list_id, read_list, read_states
from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.store import Store

LOOK_EVERY = 5.0  # seconds


async def read_lists(store: Store, settings: Settings, before: KnownLists) -> dict[str, KnownList]:
    """The lists of the providers in `settings`; those of `before` that have not changed are not read. GatewayError."""
    wanted = [list_id(name, one) for name, one in settings.providers.items() if one.discover]
    states = await read_states(store) if wanted else {}
    return {name: await _known(store, name, states.get(name, NEVER_ASKED), before.get(name)) for name in wanted}


async def _known(store: Store, name: str, state: ListState, before: KnownList | None) -> KnownList:
    if before is not None and before.state.version == state.version:
        return KnownList(state, before.found)
    found = await read_list(store, name) if state.version else None
    return KnownList(state, found) if found is not None else KnownList(ListState(error=state.error))


async def read_discovered(store: Store, settings: Settings, now: float) -> Discovered:
    """The settings of the file with the models of the lists in the store. GatewayError."""
    return discovered(settings, await read_lists(store, settings, {}), now)


class ListFollower:
    """Follows the lists in the store; `use` gets what has changed."""

    def __init__(self, store: Store, use: Callable[[Discovered], None]) -> None:
        self._store = store
        self._use = use
        self._lists: KnownLists = NO_LISTS

    async def run(self, current: Callable[[], Discovered], lock: asyncio.Lock) -> None:
        """Look at the lists every `LOOK_EVERY` seconds; the lock is held while reloads use other settings."""
        while True:
            try:
                async with lock:
                    await self._look(current())
            except GatewayError:
                pass  # without the store: the lists stay as they are
            except Exception as error:
                # The edge of a background task: whatever a list has, the pages go on.
                gateway_log.error("the lists of models could not be read", exc_info=error)
            await asyncio.sleep(LOOK_EVERY)

    async def with_lists(self, file: Settings) -> Discovered:
        """The settings of a file with the models of the present lists."""
        return await asyncio.to_thread(discovered, file, self._lists, time.time())

    async def _look(self, current: Discovered) -> None:
        file = current.file
        if not file.discovers:
            return
        self._lists = await read_lists(self._store, file, self._lists)
        asked = sum(provider.discover for provider in file.providers.values())
        if len(current.providers) < asked or usable_versions(file, self._lists, time.time()) != current.versions:
            self._use(await self.with_lists(file))
        else:
            self._use(self._with_states(current))

    def _with_states(self, current: Discovered) -> Discovered:
        """The same models, with how the last questions ended."""
        providers = current.file.providers
        known = {name: self._lists.get(list_id(name, one)) for name, one in providers.items() if one.discover}
        listed = [
            structs.replace(one, state=found.state) if (found := known.get(one.provider)) is not None else one
            for one in current.providers
        ]
        return structs.replace(current, providers=tuple(listed))
