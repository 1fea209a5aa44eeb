"""No price of a list changes without its event in the audit trail, wherever the store fails."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway.admin import outbox
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import NANO
from gateway.discovery import list_watch, stored_lists
from gateway.discovery.stored_lists import TURN, list_id, read_list
from gateway.errors import StoreUnavailable
from gateway.runtime.gateway import Gateway
from tests.discovery.lists import ListServer, ask_again, built, openrouter_model, serving, settings_of
from tests.polling import until

ONE = """
[providers.openrouter]
plugin = "openai"
preset = "openrouter"
base_url = "{openrouter}"
discover = true
"""


async def ask_once(gateway: Gateway) -> None:
    """One question, whose turn it is."""
    settings = gateway.lists.current.file
    await gateway.store.link(TURN).call("DEL", TURN + list_id("openrouter", settings.providers["openrouter"]))
    await asyncio.create_task(gateway.lists._ask_in_turn(settings, "openrouter"))


async def stored_input(gateway: Gateway) -> int:
    """The price of the prompt in the stored list."""
    own = list_id("openrouter", gateway.lists.current.file.providers["openrouter"])
    stored = await read_list(gateway.store, own)
    assert stored is not None and stored.models[0].amounts is not None
    return stored.models[0].amounts["input"]


async def raised(server: ListServer, gateway: Gateway) -> None:
    """The list has a higher price, and the worker asks for it."""
    server.list(openrouter_model("acme/large", "0.000003"))
    await ask_once(gateway)


def refuse(*_: Any, **__: Any) -> Any:
    raise StoreUnavailable(detail="down")


@pytest.mark.holds("operations/models.md#prices-of-a-list-over-time-2")
async def test_a_list_whose_event_cannot_be_written_is_not_stored(
    tmp_path: Path, valkey: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as server,
        built(settings_of(ONE, tmp_path, openrouter=server), valkey) as gateway,
    ):
        with monkeypatch.context() as broken:
            broken.setattr(outbox.AuditOutbox, "put", refuse)
            await raised(server, gateway)
            assert await stored_input(gateway) == NANO
            assert "the list of models of openrouter is not stored" in caplog.text
        await ask_once(gateway)
        assert await stored_input(gateway) == 3 * NANO
        [(_, event)] = await AuditOutbox(gateway.store).read()
        assert event is not None
        assert event.after["prices"]["acme/large"]["input"] == "3"


@pytest.mark.parametrize(("module", "name"), [(stored_lists, "write_state"), (list_watch, "write_list")])
async def test_a_list_that_cannot_be_stored_has_its_event_and_is_used_after_the_next_question(
    tmp_path: Path,
    valkey: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    module: ModuleType,
    name: str,
) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as server,
        built(settings_of(ONE, tmp_path, openrouter=server), valkey) as gateway,
    ):
        with monkeypatch.context() as broken:
            broken.setattr(module, name, refuse)
            await raised(server, gateway)
            assert len(await AuditOutbox(gateway.store).read()) == 1
            assert "the list of models of openrouter is not stored" in caplog.text
        await ask_again(gateway, "openrouter")
        await until(lambda: gateway.catalog.models["openrouter/acme/large"].price.input == 3 * NANO)


async def test_the_log_says_that_a_list_is_stored_when_the_store_fails_afterwards(
    tmp_path: Path, valkey: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        serving({"data": [openrouter_model("acme/large")]}) as server,
        built(settings_of(ONE, tmp_path, openrouter=server), valkey) as gateway,
    ):
        caplog.set_level(logging.INFO)
        monkeypatch.setattr(list_watch, "end_turn", refuse)
        await raised(server, gateway)
        assert "openrouter is stored; the next question may come early" in caplog.text
        assert "not stored" not in caplog.text
        assert "prices in the list of openrouter changed: 1, such as acme/large" in caplog.text
        assert len(await AuditOutbox(gateway.store).read()) == 1
