"""Metrics of many models: those that are used have series, the others are counted together, no counter decreases."""

from __future__ import annotations

import pytest

from gateway.config.loader import parse
from gateway.config.settings import Settings
from gateway.metrics import Metrics, MetricsDelta, Totals
from gateway.metrics.shown_models import OTHER, UNUSED, ShownModels
from gateway.runtime.known_series import known_series

pytestmark = pytest.mark.holds("metrics.md#models-1")

HEALTH = "gateway_models_unavailable"


def settings_of(models: int) -> Settings:
    named = {f"m{number}": {"provider": "fake", "free": True} for number in range(models)}
    return parse({"providers": {"fake": {"plugin": "fake"}}, "models": named})


def scrape_of(models: int) -> bytes:
    """The metrics of an installation in which every model is healthy, and three were used."""
    totals = Totals()
    totals.begin(known_series(settings_of(models)), most_models=100)
    totals.merge(MetricsDelta(gauges=[(HEALTH, (f"m{n}",), 0.0) for n in range(models)]), source="1")
    for number in range(3):
        totals.merge(used(f"m{number}"), source="1")
    return totals.text()[0]


def used(model: str, cost: float = 1.0) -> MetricsDelta:
    return MetricsDelta(
        counters=[("gateway_cost", (model,), cost)],
        histograms=[("gateway_first_token_seconds", (model, "fake"), [1.0] * 14)],
    )


def test_scrape_does_not_grow_with_the_models_of_the_configuration() -> None:
    assert len(scrape_of(2_000)) <= len(scrape_of(100))


def test_models_of_a_small_configuration_begin_at_zero() -> None:
    text = scrape_of(100).decode()
    assert 'gateway_cost_total{model="m99"} 0.0\n' in text and 'gateway_cost_total{model="m1"} 1.0\n' in text
    assert f'{HEALTH}{{model="m99"}} 0.0\n' in text and 'model="other"' not in text


def test_used_models_of_a_large_configuration_are_shown() -> None:
    text = scrape_of(101).decode()
    assert 'gateway_cost_total{model="m1"} 1.0\n' in text and 'model="m3"' not in text
    assert f'{HEALTH}{{model="other"}} 0.0\n' in text


def test_model_without_a_place_is_counted_as_other() -> None:
    totals = Totals(ShownModels(2))
    for model in ("a", "b", "c", "a", "d", "unknown"):
        totals.merge(used(model), source="1")
    text = totals.text()[0].decode()
    for model, cost in (("a", 2.0), ("b", 1.0), (OTHER, 2.0), ("unknown", 1.0)):
        assert f'gateway_cost_total{{model="{model}"}} {cost}\n' in text
    assert 'model="c"' not in text


def test_place_of_a_model_that_is_unused_for_hours_is_taken_and_its_series_end() -> None:
    now = [0.0]
    totals = Totals(ShownModels(2, clock=lambda: now[0]))
    totals.merge(used("a"), source="1")
    totals.merge(used("b"), source="1")
    now[0] = UNUSED
    totals.merge(used("b"), source="1")
    totals.merge(used("c"), source="1")
    totals.merge(used("a"), source="1")
    text = totals.text()[0].decode()
    assert 'gateway_cost_total{model="c"} 1.0\n' in text and 'gateway_cost_total{model="other"} 1.0\n' in text
    assert 'model="a"' not in text


def test_model_that_is_unavailable_is_named_without_a_place() -> None:
    totals = Totals()
    totals.begin(known_series(settings_of(5)), most_models=2)
    gauges: list[tuple[str, tuple[str, ...], float]] = [(HEALTH, (f"m{n}",), float(n > 1)) for n in range(5)]
    totals.merge(MetricsDelta(gauges=gauges), source="1")
    lines = [line for line in totals.text()[0].decode().splitlines() if line.startswith(HEALTH)]
    assert lines == [f'{HEALTH}{{model="m2"}} 1.0', f'{HEALTH}{{model="m3"}} 1.0', f'{HEALTH}{{model="other"}} 1.0']


def test_models_of_a_new_configuration_get_the_places_of_those_that_are_gone() -> None:
    totals = Totals(ShownModels(2))
    totals.merge(used("a"), source="1")
    totals.merge(used("b"), source="1")
    totals.begin([("gateway_cost", ("b",)), ("gateway_cost", ("c",))], most_models=2)
    text = totals.text()[0].decode()
    assert 'gateway_cost_total{model="b"} 1.0\n' in text and 'gateway_cost_total{model="c"} 0.0\n' in text
    assert 'model="a"' not in text


def test_models_of_lists_add_neither_series_nor_memory_however_often_their_names_change() -> None:
    totals = Totals()
    totals.begin(known_series(settings_of(3)), most_models=100)
    for round_ in range(50):
        names = [f"r{round_}-{number}" for number in range(300)]
        for value in (1.0, 0.0):
            totals.merge(MetricsDelta(gauges=[(HEALTH, (name,), value) for name in names]), source="1")
            assert totals.text()[0].count(f"{HEALTH}{{".encode()) <= 105
    assert len(totals._gauges[HEALTH]) <= 105


def test_a_worker_forgets_the_gauges_of_models_that_left_once_they_are_told() -> None:
    metrics = Metrics()
    metrics.set(HEALTH, ("a",), 1.0)
    metrics.set(HEALTH, ("b",), 0.0)
    metrics.drain()
    metrics.end(HEALTH, ("a",))
    metrics.end(HEALTH, ("b",))
    metrics.set(HEALTH, ("b",), 1.0)  # it is back
    delta = metrics.drain()
    assert delta is not None
    assert sorted(delta.gauges) == [(HEALTH, ("a",), 0.0), (HEALTH, ("b",), 1.0)]
    assert list(metrics._gauges) == [(HEALTH, ("b",))]
