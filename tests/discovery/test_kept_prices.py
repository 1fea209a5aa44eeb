"""The last prices of a list bound those of the next one, however long its server or a model was away."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from msgspec import structs

from gateway.amounts import NANO
from gateway.config.settings import ProviderSettings
from gateway.discovery.asking import ask
from gateway.discovery.stored_lists import (
    LIST,
    STATES,
    TURN,
    ListState,
    StoredList,
    StoredModel,
    list_id,
    read_list,
    write_list,
)
from gateway.plugins.model_list import ListedModel
from gateway.runtime.gateway import Gateway
from tests.discovery.lists import built, openrouter_model, reasons, served, serving, settings_of
from tests.discovery.test_asking import Plugin
from tests.polling import until

ONE = """
[providers.openrouter]
plugin = "openai"
preset = "openrouter"
base_url = "{openrouter}"
discover = true
"""
DAY = 86_400


@pytest.mark.holds("operations/models.md#prices-of-a-list-over-time-3")
async def test_the_store_keeps_the_prices_of_a_list_for_ninety_days(tmp_path: Path, valkey: Path) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as server,
        built(settings := settings_of(ONE, tmp_path, openrouter=server), valkey) as gateway,
    ):
        key = LIST + list_id("openrouter", settings.providers["openrouter"])
        assert 90 * DAY < await gateway.store.link(key).call("TTL", key) <= 90 * DAY + 3600
        # As after months without a question: the state of the list is gone.
        await gateway.store.link(STATES).call("DEL", STATES)
        server.list(openrouter_model("acme/large", "0.00005"), openrouter_model("acme/new", "0.00005"))
        await ask_without_state(gateway)
        await until(lambda: reasons(gateway) == {"acme/large": "price_changed"})
        assert served(gateway) == {"openrouter/acme/new"}


async def ask_without_state(gateway: Gateway) -> None:
    """A question for a list whose state is gone."""
    own = list_id("openrouter", gateway.lists.current.file.providers["openrouter"])
    await gateway.store.link(TURN + own).call("DEL", TURN + own)
    gateway.lists.look()


@pytest.mark.parametrize("keep", ["24h", "200d"])
async def test_the_price_of_a_model_that_left_its_list_is_kept_for_ninety_days(keep: str) -> None:
    now, days = time.time(), 90 if keep == "24h" else 200
    settings = ProviderSettings(plugin="p", discover_keep=keep)
    models = [
        StoredModel(name=f"after-{age}", amounts={"input": NANO, "output": NANO}, left_at=now - age * DAY)
        for age in (2, days - 1, days + 1)
    ]
    plugin = Plugin([ListedModel(name="x")])
    found = await ask("p", plugin, settings, StoredList(gone=tuple(models)), now=now)
    assert [one.name for one in found.found.gone] == ["after-2", f"after-{days - 1}"]


async def test_a_start_waits_for_a_list_if_the_store_has_one_that_is_too_old(tmp_path: Path, valkey: Path) -> None:
    async with serving({"data": [openrouter_model("acme/large")]}) as server:
        settings = settings_of(ONE, tmp_path, openrouter=server)
        own = list_id("openrouter", settings.providers["openrouter"])
        async with built(settings, valkey) as first:
            stored = await read_list(first.store, own)
            assert stored is not None
            old = ListState(version="old", at=time.time() - 2 * DAY)
            await write_list(first.store, own, structs.replace(stored, version=""), old, keep=60.0)
            await first.store.link(TURN + own).call("DEL", TURN + own)
            await first.lists.close()
            async with built(settings, valkey, empty=False) as second:
                assert served(second) == {"openrouter/acme/large"}
