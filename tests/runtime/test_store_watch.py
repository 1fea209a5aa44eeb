"""The supervisor's watch over the store: what `/readyz` is told."""

from __future__ import annotations

from pathlib import Path

from msgspec import structs

from gateway.config.settings import Settings
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
