"""A reload builds only what changed, and leaves the event loop to calls meanwhile."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from msgspec import structs

from gateway import Chat, ChatChunk, Provider
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.routing import router as router_module
from gateway.routing.router import Router


class Named(Provider, Chat):
    name = "named"

    async def stream_chat(self, request: Any, target: Any) -> Any:
        yield ChatChunk.text("x")


def settings(**changes: dict[str, Any]) -> Settings:
    models: dict[str, dict[str, Any]] = {
        "plain": {"provider": "a", "model": "theirs", "free": True, "aliases": ["short"]},
        "safe": {"provider": "a", "free": True, "fallbacks": ["short"]},
        "other": {"provider": "a", "free": True},
    }
    models = {name: model | changes.get(name, {}) for name, model in models.items()}
    return parse({"providers": {"a": {"plugin": "fake"}}, "models": models}, demo=True)


def kept(before: Settings, after: Settings) -> set[str]:
    """The models that a reload takes from the catalogue of before."""
    old = Catalog.build(before)
    new = Catalog.build(after, (before, old))
    assert new.models.keys() == after.models.keys() and new.aliases == Catalog.build(after).aliases
    return {name for name, model in new.models.items() if model is old.models.get(name)}


def test_reload_takes_unchanged_models_from_before() -> None:
    assert kept(settings(), settings()) == {"plain", "safe", "other"}
    assert kept(settings(), settings(other={"retries": 1})) == {"plain", "safe"}


def test_reload_builds_a_model_anew_whose_fallback_changed_or_has_another_name() -> None:
    assert kept(settings(), settings(plain={"images_like": "gpt-4o"})) == {"other"}
    moved = settings(plain={"aliases": []}, other={"aliases": ["short"]})
    assert kept(settings(), moved) == set()
    assert Catalog.build(moved, (settings(), Catalog.build(settings()))).models["safe"].fallbacks == ("short",)


@pytest.mark.gen_test
async def test_groups_of_a_reload_are_made_between_turns_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(router_module, "SLICE", 0.0)
    router = Router(Catalog.build(settings()), {"a": {0: Named(None, None)}}, makes_groups=False)  # type: ignore[arg-type]
    turns, making = 0, asyncio.ensure_future(router.make_groups())
    while not making.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns >= len(router.catalog.models)
    assert [one.target.model for one in router.resolve(router.catalog.models["plain"], Chat)] == ["theirs"]


@pytest.mark.gen_test
async def test_catalogue_of_a_reload_is_built_in_a_thread(gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, build = list[threading.Thread](), Catalog.build

    def noted(*args: Any) -> Catalog:
        threads.append(threading.current_thread())
        return build(*args)

    monkeypatch.setattr(Catalog, "build", noted)
    models = gateway.settings.models
    await gateway.reload(structs.replace(gateway.settings, models={**models, "further": next(iter(models.values()))}))
    assert len(threads) == 1 and threads[0] is not threading.main_thread()
    assert "further" in gateway.catalog.models
