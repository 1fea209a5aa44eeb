"""A model is unavailable while none of its own targets may be called with any credential."""

from __future__ import annotations

import time
from typing import Any

from gateway.catalog import Catalog
from gateway.config.loader import parse
from gateway.metrics import Metrics
from gateway.routing.circuit_registry import CircuitRegistry
from gateway.routing.model_health import ModelHealth


def catalog(**models: Any) -> Catalog:
    providers = {name: {"plugin": "fake"} for name in ("a", "b")}
    tables = {name: {"free": True, **model} for name, model in models.items()}
    return Catalog.build(parse({"providers": providers, "models": tables}, demo=True))


TWO = {"targets": [{"provider": "a"}, {"provider": "b"}]}


class Worker:
    """The circuits and models of one worker."""

    def __init__(self, providers: dict[str, list[int]], **models: Any) -> None:
        self.metrics = Metrics()
        self.health = CircuitRegistry(self.metrics)
        self.models = ModelHealth(self.metrics, self.health)
        self.models.use(catalog(**models), providers)

    def open(self, provider: str, credential: int, model: str, cause: str = "failures") -> None:
        self.health.circuit(provider, credential, model, "chat").apply(cause, time.monotonic(), 30.0)  # type: ignore[arg-type]
        self.health.apply_remote(self.health.circuit(provider, credential, model, "chat").key, cause, 30.0)

    def unavailable(self, model: str) -> float:
        self.models.note()
        return self.metrics._gauges["gateway_models_unavailable", (model,)]


def test_model_is_unavailable_when_the_last_of_its_targets_opens_and_no_other_is() -> None:
    worker = Worker({"a": [0], "b": [0]}, two=TWO, other={"provider": "b"})
    assert worker.unavailable("two") == 0
    worker.open("a", 0, "two")
    assert worker.unavailable("two") == 0
    worker.open("b", 0, "two")
    assert worker.unavailable("two") == 1
    assert worker.unavailable("other") == 0


def test_target_works_while_one_of_its_credentials_does() -> None:
    worker = Worker({"a": [0, 1]}, one={"provider": "a"})
    worker.open("a", 0, "one")
    assert worker.unavailable("one") == 0
    worker.open("a", 1, "one")
    assert worker.unavailable("one") == 1


def test_refused_credential_and_quarantined_provider_count_for_all_their_targets() -> None:
    worker = Worker({"a": [0]}, one={"provider": "a"}, more={"provider": "a"})
    worker.health.circuit("a", 0, "one", "chat")
    worker.open("a", 0, "", "credential")
    assert (worker.unavailable("one"), worker.unavailable("more")) == (1, 1)


def test_model_whose_provider_cannot_be_created_is_unavailable_until_a_reload_removes_it() -> None:
    worker = Worker({"b": [0]}, one={"provider": "a"}, two=TWO)
    assert (worker.unavailable("one"), worker.unavailable("two")) == (1, 0)
    worker.models.use(catalog(two=TWO), {"b": [0]})
    assert worker.unavailable("one") == 0


def test_worker_has_a_target_while_one_provider_of_its_models_could_be_created() -> None:
    models = Worker({"b": [0]}, one={"provider": "a"}, two=TWO).models
    found = [models.has_target]
    for catalog_, providers in ((catalog(two=TWO), {"a": [], "c": [0]}), (catalog(), dict[str, list[int]]())):
        models.use(catalog_, providers)
        found.append(models.has_target)
    assert found == [True, False, True], "without models it serves lists and balances"


def test_models_are_looked_at_only_after_a_change() -> None:
    worker = Worker({"a": [0]}, one={"provider": "a"})
    worker.models.note()
    worker.metrics.drain()
    worker.models.note()
    assert worker.metrics.drain() is None
