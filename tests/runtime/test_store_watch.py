"""The supervisor's watch over the store: what `/readyz` is told."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from msgspec import structs

from gateway.config.settings import Settings
from gateway.runtime import store_watch
from gateway.runtime.store_watch import StoreWatch
from gateway.store import Store


async def test_store_is_not_usable_before_the_watch_has_begun(store: Store, settings: Settings, tmp_path: Path) -> None:
    claimed: list[str] = []
    settings = structs.replace(settings, store=structs.replace(settings.store, data_dir=tmp_path))
    watch = StoreWatch(settings, accept_empty=True, on_claimed=claimed.append, on_back=lambda: None)
    assert not await watch.is_usable()
    watch.store = store  # `begin` has it before the peppers
    assert not await watch.is_usable()
    assert claimed == []
    await watch.begin(store)
    assert await watch.is_usable()
    assert len(claimed) == 1


@pytest.mark.holds("metrics.md#metrics-1")
async def test_store_that_does_not_answer_in_time_is_not_usable(
    store: Store, settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = structs.replace(settings, store=structs.replace(settings.store, data_dir=tmp_path))
    watch = StoreWatch(settings, accept_empty=True, on_claimed=lambda _: None, on_back=lambda: None)
    watch.store = store
    await watch.begin(store)
    monkeypatch.setattr(store_watch, "READY_WITHIN", 0.05)
    monkeypatch.setattr(store, "probe", asyncio.Event().wait)
    assert not await watch.is_usable()
    monkeypatch.undo()
    assert await watch.is_usable()
