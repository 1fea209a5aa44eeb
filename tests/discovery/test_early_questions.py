"""A reload asks at once for the lists of what it changes, once for all workers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from gateway.amounts import NANO
from gateway.discovery.early_questions import changed_providers
from tests.discovery.lists import built, openrouter_model, reasons, served, serving, settings_of
from tests.polling import until

ONE = """
[providers.openrouter]
plugin = "openai"
preset = "openrouter"
base_url = "{openrouter}"
discover = true
"""
PATTERN = '[models."openrouter/*"]\nprovider = "openrouter"\nprice = "upstream"\nmarkup = 2\n'
OTHER = '[providers.other]\nplugin = "openai"\nbase_url = "http://127.0.0.1:9/v1"\ndiscover = true\n'
FREE = '[models.own]\nprovider = "openrouter"\nfree = true\n'


@pytest.mark.parametrize(
    ("before", "after", "names"),
    [
        (ONE, ONE + FREE + "[server]\nport = 8090\n", set()),
        (ONE, ONE + 'discover_every = "2h"\n', {"openrouter"}),
        (ONE, ONE + PATTERN, {"openrouter"}),
        (ONE + PATTERN, ONE + PATTERN.replace("2", "3"), {"openrouter"}),
        (ONE + PATTERN, ONE, {"openrouter"}),
        (ONE, ONE + OTHER, {"other"}),
        (ONE + OTHER, ONE, set()),
        (ONE + OTHER, ONE + OTHER.replace("true", "false"), set()),
        (ONE + OTHER.replace("true", "false"), ONE + OTHER, {"other"}),
    ],
)
def test_providers_that_are_new_or_changed_are_asked(before: str, after: str, names: set[str], tmp_path: Path) -> None:
    old, new = (
        settings_of(text.replace("{openrouter}", "http://127.0.0.1:9/v1"), tmp_path) for text in (before, after)
    )
    assert changed_providers(old, new) == names


@pytest.mark.holds("operations/models.md#who-asks-4")
async def test_a_reload_that_changes_a_pattern_asks_once_for_all_workers(tmp_path: Path, valkey: Path) -> None:
    async with serving({"data": [openrouter_model("acme/large")]}) as server:
        settings = settings_of(ONE, tmp_path, openrouter=server)
        async with built(settings, valkey) as first, built(settings, valkey, empty=False) as second:
            assert server.questions == 1
            server.list(openrouter_model("acme/large"), openrouter_model("acme/new"))
            changed = settings_of(ONE + PATTERN, tmp_path, openrouter=server)
            await asyncio.gather(first.reload(changed), second.reload(changed))
            await until(lambda: any("openrouter/acme/new" in served(one) for one in (first, second)))
            first.lists.look()
            second.lists.look()
            await until(lambda: "openrouter/acme/new" in served(first))
            await until(lambda: "openrouter/acme/new" in served(second))
            assert second.catalog.models["openrouter/acme/new"].price.input == 2 * NANO
            assert server.questions == 2
            same = settings_of(ONE + PATTERN + FREE, tmp_path, openrouter=server)
            await first.reload(same)
            first.lists.look()
            await asyncio.gather(*first.lists._asking.values())
            assert server.questions == 2


async def test_a_bound_that_is_raised_applies_at_once(tmp_path: Path, valkey: Path) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as server,
        built(settings_of(ONE, tmp_path, openrouter=server), valkey) as gateway,
    ):
        server.list(openrouter_model("acme/large", "0.00005", "0.0001"))
        await gateway.reload(settings_of(ONE + "discover_most = 99\n", tmp_path, openrouter=server))
        await until(lambda: reasons(gateway) == {"acme/large": "price_changed"})
        await gateway.reload(settings_of(ONE + "discover_max_change = 100\n", tmp_path, openrouter=server))
        await until(lambda: served(gateway) == {"openrouter/acme/large"})
