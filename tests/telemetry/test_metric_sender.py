"""The metrics that a collector of OpenTelemetry gets are those of a scrape."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from prometheus_client.core import Metric

from gateway.config.loader import parse
from gateway.config.settings import TelemetrySettings
from gateway.metrics import Metrics, Totals
from gateway.telemetry.metric_sender import send_metrics
from tests.api.collector import Collector, attributes_of
from tests.polling import until


class Machine:
    """Counts of one machine."""

    def __init__(self) -> None:
        self.own, self.totals = Metrics(), Totals()

    async def measured(self) -> Machine:
        delta = self.own.drain()
        if delta is not None:
            self.totals.merge(delta, source="here")
        return self

    def families(self) -> list[Metric]:
        return list(self.totals.collect())


@asynccontextmanager
async def sending(settings: TelemetrySettings, machine: Machine) -> AsyncIterator[None]:
    """The metrics are sent while the block runs."""
    task = asyncio.create_task(send_metrics(settings, machine.measured))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def machine() -> Iterator[Machine]:
    """A machine that has counted two requests and something else."""
    machine = Machine()
    machine.own.inc("gateway_requests", ("chat", "m1", "up", "ok"), 2)
    machine.own.set("gateway_workers", (), 3.0)
    for seconds in (0.02, 0.02, 700.0):
        machine.own.observe("gateway_request_duration_seconds", ("chat", "m1"), seconds)
    yield machine


@pytest.mark.holds("operations/telemetry.md#metrics-1")
async def test_counters_gauges_and_histograms_have_the_names_and_values_of_a_scrape(machine: Machine) -> None:
    async with Collector() as collector:
        settings = parse({"telemetry": {"endpoint": collector.url, "metrics": True, "metrics_interval": 1}}).telemetry
        async with sending(settings, machine):
            await until(lambda: collector.metrics)
        found = collector.metrics_so_far()
    [requests] = found["gateway_requests"].sum.data_points
    assert requests.as_double == 2
    assert attributes_of(requests.attributes) == {
        "endpoint": "chat",
        "model": "m1",
        "provider": "up",
        "outcome": "ok",
    }
    assert found["gateway_requests"].sum.is_monotonic
    cumulative = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
    assert found["gateway_requests"].sum.aggregation_temporality == cumulative
    [workers] = found["gateway_workers"].gauge.data_points
    assert workers.as_double == 3
    [durations] = found["gateway_request_duration_seconds"].histogram.data_points
    assert (durations.count, durations.sum) == (3, pytest.approx(700.04))
    assert len(durations.bucket_counts) == len(durations.explicit_bounds) + 1
    assert sum(durations.bucket_counts) == 3
    assert (durations.bucket_counts[2], durations.bucket_counts[-1]) == (2, 1)
    assert not durations.HasField("min")
    [named] = found["gen_ai.server.request.duration"].histogram.data_points
    assert attributes_of(named.attributes) == {"gen_ai.operation.name": "chat", "gen_ai.request.model": "m1"}


@pytest.mark.parametrize("table", [{}, {"metrics": True}, {"endpoint": "http://127.0.0.1:9"}])
async def test_nothing_is_sent_unless_the_configuration_says_so(machine: Machine, table: dict[str, object]) -> None:
    async with asyncio.timeout(60):
        await send_metrics(parse({"telemetry": table}).telemetry, machine.measured)


async def test_collector_that_refuses_gets_the_next_ones(machine: Machine) -> None:
    async with Collector() as collector:
        collector.status = 400
        settings = parse({"telemetry": {"endpoint": collector.url, "metrics": True, "metrics_interval": 1}}).telemetry
        async with sending(settings, machine):
            await until(lambda: len(collector.metrics) >= 2)
