"""A gateway whose models name hooks of a test's own, before a scripted upstream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
from tornado.ioloop import IOLoop

from gateway import (
    Authenticate,
    CheckAnswer,
    CheckCall,
    CheckedAnswer,
    CheckedCall,
    Hook,
    Identity,
    Route,
    RouteOption,
    hookimpl,
)
from gateway.config.loader import parse
from gateway.config.settings import PluginSettings, Settings
from gateway.plugins.loader import PluginReport, load_plugins
from gateway.runtime.gateway import Gateway
from gateway.store import Store
from gateway.testing import FakeUpstream
from tests.api.conftest import Client, client, other, upstream
from tests.conftest import PEPPER

__all__ = ["Client", "client", "other", "upstream"]

ENDPOINTS = ["chat", "embeddings", "images", "moderation", "rerank", "speech", "transcription"]
PRICE = {
    "input": 1, "output": 2, "audio_input": 1, "audio_output": 1, "per_image": {"*": {"*": "0.01"}},
    "per_second_in": "0.01", "per_search_unit": "0.01", "per_character": 1000,
}  # fmt: skip


class Scripted(Hook, CheckCall, CheckAnswer, Route, Authenticate):
    """Does what the test says, and notes what it saw."""

    name = "scripted"
    on_call: ClassVar[Callable[[CheckedCall], Awaitable[Any]] | None] = None
    on_answer: ClassVar[Callable[[CheckedCall, CheckedAnswer], Awaitable[Any]] | None] = None
    on_route: ClassVar[Callable[[CheckedCall, Sequence[RouteOption]], Awaitable[Any]] | None] = None
    on_credential: ClassVar[Callable[[str], Awaitable[Any]] | None] = None
    calls: ClassVar[list[CheckedCall]] = []
    answers: ClassVar[list[CheckedAnswer]] = []

    async def check_call(self, call: CheckedCall) -> Any:
        self.calls.append(call)
        do = type(self).on_call
        return None if do is None else await do(call)

    async def check_answer(self, call: CheckedCall, answer: CheckedAnswer) -> Any:
        self.answers.append(answer)
        do = type(self).on_answer
        return None if do is None else await do(call, answer)

    async def route(self, call: CheckedCall, options: Sequence[RouteOption]) -> Any:
        do = type(self).on_route
        return options if do is None else await do(call, options)

    async def authenticate(self, credential: str) -> Identity | None:
        do = type(self).on_credential
        return None if do is None else await do(credential)


@pytest.fixture
def scripted() -> Iterator[type[Scripted]]:
    """The class of the hooks, clean again after the test."""
    yield Scripted
    Scripted.on_call = Scripted.on_answer = Scripted.on_route = Scripted.on_credential = None
    Scripted.calls.clear()
    Scripted.answers.clear()


@pytest.fixture
def hook_settings() -> dict[str, Any]:
    """The keys of [hooks.check], besides its plugin; override it in a test module."""
    return {"timeout": 20, "stream_delay": 10}


@pytest.fixture
def document(tmp_path: Path, upstream: FakeUpstream, hook_settings: dict[str, Any]) -> dict[str, Any]:
    """The configuration: `m` with the hook, `free` without it, `two` with the hook and two targets."""
    key = "sk-upstream-canary-0123456789"
    up = {"plugin": "openai", "base_url": upstream.base_url, "api_key": key, "completions": True}
    model = {"provider": "up", "price": PRICE, "endpoints": ENDPOINTS, "retries": 0, "hooks": ["check"]}
    two = {"targets": [{"provider": "up", "model": name} for name in ("first", "second")], "strategy": "in_order"}
    return {
        "store": {"data_dir": str(tmp_path)},
        "providers": {
            "up": up,
            "own": {**up, "responses": True},
            "ant": {"plugin": "anthropic", "base_url": upstream.url, "api_key": key},
            "gem": {"plugin": "gemini", "base_url": upstream.url, "api_key": key},
        },
        "hooks": {"check": {"plugin": "scripted", **hook_settings}},
        "groups": {"default": {}},
        "models": {
            "m": model,
            "free": {**model, "hooks": []},
            "two": {"price": PRICE, "hooks": ["check"], "retries": 0, **two},
            "native": {**model, "provider": "own", "endpoints": ["chat"]},
            "claude": {**model, "provider": "ant", "endpoints": ["chat"]},
            "gemini": {**model, "provider": "gem", "endpoints": ["chat"]},
        },
    }


@pytest.fixture
def settings(document: dict[str, Any]) -> Settings:
    return parse(document, demo=True)


@pytest.fixture
def gateway(io_loop: IOLoop, store: Store, settings: Settings, scripted: type[Scripted]) -> Iterator[Gateway]:
    plugins = load_plugins(PluginSettings())
    module = ModuleType("scripted")
    module.register_hooks = hookimpl(register_hooks)  # type: ignore[attr-defined]
    plugins.load(PluginReport(name="scripted", version="0", source="test"), lambda: module)
    gateway = io_loop.run_sync(lambda: Gateway.build(settings, store, pepper=PEPPER, plugins=plugins))
    gateway.overload.max_lag = 0.0
    yield gateway
    io_loop.run_sync(gateway.close)


def register_hooks(register: Callable[[type[Hook]], None]) -> None:
    register(Scripted)


def counted(gateway: Gateway, name: str = "gateway_hook_runs") -> dict[tuple[str, ...], float]:
    """The counters of a metric since the last time."""
    delta = gateway.metrics.drain()
    found = () if delta is None else delta.counters
    return {labels: value for one, labels, value in found if one == name and value}
