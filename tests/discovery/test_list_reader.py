"""Consoles and commands read the lists that workers have written."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from msgspec import structs

from gateway.config.settings import Settings
from gateway.discovery.discovered import Discovered
from gateway.discovery.list_reader import ListFollower, read_discovered
from gateway.discovery.stored_lists import (
    FORGOTTEN,
    MOST_LISTS,
    STATES,
    UNASKED,
    ListState,
    forget_states,
    list_id,
    read_states,
    write_list,
    write_state,
)
from gateway.store import Store
from tests.discovery.lists import settings_of
from tests.discovery.shared_lists import MODELS, PROVIDER, known_lists, write_lists


def own_id(settings: Settings) -> str:
    return list_id(PROVIDER, settings.providers[PROVIDER])


async def test_a_command_has_the_models_of_the_lists(store: Store, tmp_path: Path) -> None:
    settings = settings_of(MODELS, tmp_path)
    await write_lists(store, settings)
    found = await read_discovered(store, settings, time.time())
    assert set(found.settings.models) == {"fake-chat", "router/acme/large"}
    assert found.settings.configured.models.keys() == {"fake-chat"}
    assert found.providers[0].counts() == {"served": 1, "free": 1, "no_price": 1, "name": 1}


async def test_a_list_that_is_too_old_is_not_used(store: Store, tmp_path: Path) -> None:
    settings = settings_of(MODELS, tmp_path)
    await write_lists(store, settings)
    found = await read_discovered(store, settings, time.time() + 86_500)
    assert set(found.settings.models) == {"fake-chat"}
    assert found.providers[0].counts() == {}


async def test_a_process_that_follows_has_changes_and_failures(store: Store, tmp_path: Path) -> None:
    settings, used = settings_of(MODELS, tmp_path), list[Discovered]()
    follower = ListFollower(store, used.append)
    current = Discovered(settings, settings)
    await follower._look(current)
    assert [one.provider for one in used[-1].providers] == [PROVIDER]  # without a list, too
    await write_lists(store, settings)
    await follower._look(used[-1])
    assert "router/acme/large" in used[-1].settings.models
    before = used[-1].settings
    state = structs.replace(known_lists(settings)[own_id(settings)].state, failed_at=time.time(), error="no answer")
    await write_state(store, own_id(settings), state)
    await follower._look(used[-1])
    assert used[-1].providers[0].state.error == "no answer"
    assert used[-1].settings is before


async def test_a_process_that_follows_survives_what_another_release_has_written(store: Store, tmp_path: Path) -> None:
    settings, used = settings_of(MODELS, tmp_path), list[Discovered]()
    await store.link(STATES).call("HSET", STATES, own_id(settings), b"\xff not JSON")
    follower = ListFollower(store, used.append)
    running = asyncio.create_task(follower.run(lambda: Discovered(settings, settings), asyncio.Lock()))
    while not used:
        await asyncio.sleep(0)
    running.cancel()
    assert set(used[-1].settings.models) == {"fake-chat"}


async def test_a_state_whose_list_is_gone_serves_nothing(store: Store, tmp_path: Path) -> None:
    settings = settings_of(MODELS, tmp_path)
    await write_state(store, own_id(settings), ListState(version="1", at=time.time()))
    assert set((await read_discovered(store, settings, time.time())).settings.models) == {"fake-chat"}


async def test_lists_expire_in_the_store_and_old_states_are_removed(store: Store, tmp_path: Path) -> None:
    settings = settings_of(MODELS, tmp_path)
    for name, known in known_lists(settings).items():
        await write_list(store, name, known.found, known.state, keep=60.0)
        assert 0 < await store.client.ttl(f"discovery:list:{name}") <= 60 + 3600
        await write_list(store, "old:1", known.found, known.state, keep=60.0)
    await write_state(store, "old:1", ListState(version="1", at=time.time() - FORGOTTEN - 60))
    await forget_states(store, await read_states(store), time.time())
    assert list(await read_states(store)) == [own_id(settings)]
    assert not await store.client.exists("discovery:list:old:1")


async def test_many_lists_are_kept_only_while_somebody_asks_for_them(store: Store) -> None:
    now = time.time()
    for number in range(MOST_LISTS + 2):
        await write_state(store, f"new:{number}", ListState(version="1", at=now))
    await write_state(store, "failing:1", ListState(version="1", at=now - UNASKED - 60, failed_at=now))
    await forget_states(store, await read_states(store), now)
    assert len(await read_states(store)) == MOST_LISTS + 3
    for number in range(3):
        await write_state(store, f"new:{number}", ListState(version="1", at=now - UNASKED - 60 - number))
    await forget_states(store, await read_states(store), now)
    assert len(await read_states(store)) == MOST_LISTS
    assert "new:0" not in await read_states(store)
