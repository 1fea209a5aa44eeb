"""Targets: weights spread, order falls back, and attempts end at the first answer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from gateway import Chat, ChatChunk, Embeddings, Provider
from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.errors import (
    NoHealthyUpstream,
    ProviderFailed,
    UnsupportedParameter,
    UpstreamError,
    UpstreamRejected,
    UpstreamTruncated,
    UpstreamUnreachable,
)
from gateway.log import PluginLog
from gateway.metrics import Metrics, Totals
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.dispatcher import Dispatcher
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate, Router


class Named(Provider, Chat):
    name = "named"

    async def stream_chat(self, request: Any, target: Any) -> Any:
        yield ChatChunk.text("x")


class Mute(Provider):
    name = "mute"


def catalog(tmp_path: Path) -> Catalog:
    free = {"free": True}
    settings = parse(
        {
            "providers": {name: {"plugin": "fake"} for name in ("a", "b", "gone", "mute")},
            "models": {
                "spread": {
                    "targets": [{"provider": "a", "weight": 3}, {"provider": "b", "weight": 1}, {"provider": "gone"}],
                    "fallbacks": ["plain"],
                    **free,
                },
                "plain": {"provider": "b", "model": "theirs", "aliases": ["short"], **free},
                "silent": {"provider": "mute", **free},
                "lost": {"provider": "gone", **free},
            },
        },
        demo=True,
    )
    return Catalog.build(settings)


@pytest.fixture
def router(tmp_path: Path) -> Router:
    providers: dict[str, dict[int, Provider]] = {
        "a": {0: Named(None, None)},  # type: ignore[arg-type]
        "b": {0: Named(None, None)},  # type: ignore[arg-type]
        "mute": {0: Mute(None, None)},  # type: ignore[arg-type]
    }
    return Router(catalog(tmp_path), providers, rng=random.Random(7))


def places(candidates: list[Candidate]) -> list[tuple[str, str]]:
    return [(candidate.target.provider, candidate.target.model) for candidate in candidates]


def test_weights_distribute_the_first_target_and_fallbacks_come_last(router: Router) -> None:
    model = router.catalog.models["spread"]
    orders = [places(router.resolve(model, Chat)) for _ in range(2000)]
    assert all(order[-1] == ("b", "theirs") for order in orders)
    first = Counter(order[0][0] for order in orders)
    assert 0.70 < first["a"] / 2000 < 0.80


def test_aliases_resolve_to_their_model(router: Router) -> None:
    model = router.catalog.find("short")
    assert model is not None
    assert model.name == "plain"
    assert router.catalog.find("nothing") is None


def test_a_model_whose_providers_are_out_of_service_is_unavailable(router: Router) -> None:
    with pytest.raises(NoHealthyUpstream):
        router.resolve(router.catalog.models["lost"], Chat)


def test_a_model_without_the_capability_is_refused_with_its_own_error(router: Router) -> None:
    with pytest.raises(UnsupportedParameter):
        router.resolve(router.catalog.models["silent"], Chat)


Option = Adapted[Any]


class Scene:
    """A dispatcher over targets that play a script."""

    def __init__(self, router: Router, *outcomes: Any) -> None:
        self.metrics = Metrics()
        self.dispatcher = Dispatcher(self.metrics, PluginLog())
        candidate = router.resolve(router.catalog.models["plain"], Chat)[0]
        self.options = [Option(candidate, None, ()) for _ in outcomes]
        self.outcomes = list(outcomes)
        self.tried: list[Candidate] = []

    async def attempt(self, option: Option) -> Any:
        outcome = self.outcomes[len(self.tried) - 1]
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    async def call(self) -> Any:
        return await self.dispatcher.call(self.options, self.attempt, self.tried)

    def errors(self) -> str:
        totals = Totals()
        delta = self.metrics.drain()
        if delta is not None:
            totals.merge(delta, source="w")
        return totals.text()[0].decode()


async def test_retryable_failures_are_retried_on_the_next_target_and_counted(router: Router) -> None:
    scene = Scene(router, UpstreamUnreachable(), "answer")
    assert await scene.call() == "answer"
    assert len(scene.tried) == 2
    assert 'gateway_upstream_errors_total{code="upstream_error",model="plain",provider="b"} 1.0' in scene.errors()


async def test_rejected_request_ends_the_attempts(router: Router) -> None:
    scene = Scene(router, UpstreamRejected(), "never")
    with pytest.raises(UpstreamRejected):
        await scene.call()
    assert len(scene.tried) == 1


async def test_attempts_are_limited_and_the_last_error_is_raised(router: Router) -> None:
    scene = Scene(router, *(UpstreamUnreachable(detail=str(number)) for number in range(9)))
    with pytest.raises(UpstreamUnreachable) as caught:
        await scene.call()
    assert len(scene.tried) == 3
    assert caught.value.detail == "2"


async def test_every_exception_of_a_provider_is_contained(router: Router, caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene(router, ZeroDivisionError("sk-canary-in-an-exception"), KeyError("x"))
    with pytest.raises(UpstreamError) as caught:
        await scene.call()
    assert "canary" not in str(caught.value)
    assert "provider b raised ZeroDivisionError" in caplog.text


async def test_a_stream_that_yields_nothing_counts_as_truncated(router: Router) -> None:
    scene = Scene(router, "unused")

    async def nothing(option: Option) -> Any:
        return
        yield

    with pytest.raises(UpstreamTruncated):
        await scene.dispatcher.open(scene.options, nothing, scene.tried)


def test_target_that_a_fallback_shares_with_its_model_is_listed_once() -> None:
    settings = parse(
        {
            "providers": {"a": {"plugin": "fake"}, "b": {"plugin": "fake"}},
            "models": {
                "m": {"provider": "a", "model": "theirs", "fallbacks": ["n", "o", "n"], "free": True},
                "o": {"provider": "a", "model": "others", "free": True},
                "n": {
                    "targets": [{"provider": "a", "model": "theirs"}, {"provider": "b", "model": "theirs"}],
                    "strategy": "in_order",
                    "free": True,
                },
            },
        },
        demo=True,
    )
    named = {0: Named(None, None)}  # type: ignore[arg-type]
    router = Router(Catalog.build(settings), {"a": named, "b": named})
    found = router.resolve(router.catalog.models["m"], Chat)
    assert places(found) == [("a", "theirs"), ("b", "theirs"), ("a", "others")]
    assert found[0].model.name == "m"


class Both(Named, Embeddings):
    name = "both"

    async def embed(self, request: Any, target: Any) -> Any: ...


def test_capabilities_of_one_upstream_model_have_circuits_of_their_own_that_a_reload_keeps(tmp_path: Path) -> None:
    """Faults of one capability do not quarantine the other."""
    found, health = catalog(tmp_path), CircuitRegistry(Metrics())
    providers = {"b": {0: Both(None, None)}}  # type: ignore[arg-type]
    router = Router(found, providers, health=health)
    model = found.models["plain"]
    [chat], [vectors] = router.resolve(model, Chat), router.resolve(model, Embeddings)
    for number in range(5):
        chat.circuit.failed(ProviderFailed(), 0.0, account=f"a{number}", of_plugin=True)
    assert (chat.circuit.cause, vectors.circuit.closed()) == ("plugin", True)
    again = Router(found, providers, health=health)
    assert again.resolve(model, Embeddings)[0].circuit is vectors.circuit
    assert health.circuit("b", 0, "theirs", "chat") is chat.circuit
