"""Counting: exact over processes, cheap in each, and in the forms that scrapers ask for."""

from __future__ import annotations

from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus

from gateway.metrics import METRICS, Metrics, MetricsDelta, Totals, decode_delta, encode_delta


def totals_of(*workers: Metrics) -> Totals:
    totals = Totals()
    for number, worker in enumerate(workers):
        totals.merge(decode_delta(encode_delta(worker.drain() or MetricsDelta())), source=f"w{number}")
    return totals


def value(totals: Totals, name: str, **labels: str) -> float | None:
    families = prometheus(totals.text()[0].decode())
    samples = (sample for family in families for sample in family.samples)
    return next((sample.value for sample in samples if sample.name == name and sample.labels == labels), None)


def test_counts_of_several_processes_add_up() -> None:
    one, two = Metrics(), Metrics()
    one.inc("gateway_worker_restarts")
    two.inc("gateway_worker_restarts", amount=2)
    totals = totals_of(one, two)
    assert value(totals, "gateway_worker_restarts_total") == 3


def test_a_drained_count_is_not_counted_again() -> None:
    metrics = Metrics()
    metrics.inc("gateway_worker_restarts")
    totals = totals_of(metrics)
    assert metrics.drain() is None
    assert value(totals, "gateway_worker_restarts_total") == 1


def test_histograms_are_cumulative_and_sum() -> None:
    metrics = Metrics()
    for seconds in (0.0001, 0.0002, 0.3, 99.0):
        metrics.store_round_trip(seconds)
    totals = totals_of(metrics)
    assert value(totals, "gateway_store_seconds_bucket", le="0.0001") == 1
    assert value(totals, "gateway_store_seconds_bucket", le="0.00025") == 2
    assert value(totals, "gateway_store_seconds_bucket", le="0.25") == 2
    assert value(totals, "gateway_store_seconds_bucket", le="+Inf") == 4
    assert value(totals, "gateway_store_seconds_count") == 4
    assert value(totals, "gateway_store_seconds_sum") == 0.0001 + 0.0002 + 0.3 + 99.0


def test_gauges_of_a_dead_worker_are_removed_and_its_counts_stay() -> None:
    one, two = Metrics(), Metrics()
    for metrics in (one, two):
        metrics.add("gateway_in_flight", ("chat",), 1.0)
        metrics.inc("gateway_worker_restarts")
    totals = totals_of(one, two)
    assert value(totals, "gateway_in_flight", endpoint="chat") == 2
    totals.forget("w0")
    assert value(totals, "gateway_in_flight", endpoint="chat") == 1
    assert value(totals, "gateway_worker_restarts_total") == 2


def test_build_info_is_reported_once_for_several_processes() -> None:
    one, two = Metrics(), Metrics()
    one.build_info()
    two.build_info()
    families = {family.name: family for family in prometheus(totals_of(one, two).text()[0].decode())}
    assert [sample.value for sample in families["gateway_build_info"].samples] == [1.0]


def test_both_exposition_forms_parse_and_name_every_metric() -> None:
    metrics = Metrics()
    metrics.store_round_trip(0.1)
    totals = totals_of(metrics)
    plain, content_type = totals.text("text/plain")
    assert content_type.startswith("text/plain")
    assert {family.name for family in prometheus(plain.decode())} == {spec.name for spec in METRICS}
    opened, content_type = totals.text("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert {family.name for family in openmetrics(opened.decode())} == {spec.name for spec in METRICS}


def test_changed_number_of_calls_in_flight_is_reported() -> None:
    metrics = Metrics()
    metrics.begun("chat")
    metrics.begun("chat")
    metrics.ended("chat")
    assert (delta := metrics.drain()) is not None
    assert delta.gauges == [("gateway_in_flight", ("chat",), 1.0)]
    assert metrics.drain() is None
    metrics.ended("chat")
    assert (delta := metrics.drain()) is not None
    assert delta.gauges == [("gateway_in_flight", ("chat",), 0.0)]


def test_gauge_is_zero_after_all_calls_ended() -> None:
    metrics = Metrics()
    metrics.begun("chat")
    metrics.ended("chat")
    assert (delta := metrics.drain()) is not None
    assert delta.gauges == [("gateway_in_flight", ("chat",), 0.0)]
