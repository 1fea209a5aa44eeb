"""Sends the metrics of a machine by OTLP over HTTP: what a scrape of the side port shows, every interval.

The supervisor runs it. The counters are cumulative since its start. Two histograms have the names of OpenTelemetry's
conventions for generative AI besides: `gen_ai.server.request.duration` and `gen_ai.server.time_to_first_token`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol, cast

from prometheus_client.core import Metric as Family

from gateway.config.telemetry_settings import TelemetrySettings
from gateway.log import WarningLimit, gateway_log

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint, Metric, MetricsData, NumberDataPoint

SEND_WITHIN = 10.0  # seconds
#: Names of the conventions for histograms of ours, and of their labels.
CONVENTIONS = {
    "gateway_request_duration_seconds": "gen_ai.server.request.duration",
    "gateway_first_token_seconds": "gen_ai.server.time_to_first_token",
}
LABELS = {"model": "gen_ai.request.model", "provider": "gen_ai.provider.name", "endpoint": "gen_ai.operation.name"}


class Measured(Protocol):
    """The metrics of a machine."""

    def families(self) -> list[Family]:
        """All of them."""


async def send_metrics(settings: TelemetrySettings, measure: Callable[[], Awaitable[Measured]]) -> None:
    """Send what `measure` returns every interval until cancelled; returns at once where metrics are not sent."""
    if not settings.sends_metrics:
        return
    warnings, began = WarningLimit(), time.time_ns()
    try:
        from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
        from opentelemetry.sdk.metrics.export import MetricExportResult

        from gateway.config.secret_headers import reveal_headers

        exporter = await asyncio.to_thread(
            OTLPMetricExporter,
            endpoint=f"{settings.endpoint.rstrip('/')}/v1/metrics",
            headers=reveal_headers(settings.headers),
            timeout=SEND_WITHIN,
        )
    except Exception as error:
        # The library of the extra `otel` may be missing, or refuse what the configuration says.
        gateway_log.error("metrics are not sent: %s", error)
        return
    while True:
        await asyncio.sleep(settings.metrics_interval)
        found = (await measure()).families()
        data = await asyncio.to_thread(metrics_data, settings, found, began)
        result = await asyncio.to_thread(exporter.export, data)
        if result is not MetricExportResult.SUCCESS and warnings.due("metrics", time.monotonic()):
            gateway_log.warning("the collector did not take the metrics; the next ones have the same counts")


def metrics_data(settings: TelemetrySettings, families: Iterable[Family], began: int) -> MetricsData:
    """The families as OTLP has them; `began`: nanoseconds since 1970 at which the counters were 0."""
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics

    from gateway.telemetry.span_sender import SCOPE, resource_of

    now = time.time_ns()
    metrics = [metric for family in families for metric in _metrics(family, began, now)]
    scope = ScopeMetrics(scope=SCOPE, metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource=resource_of(settings), scope_metrics=[scope], schema_url="")])


def _metrics(family: Family, began: int, now: int) -> Iterator[Metric]:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Gauge, Histogram, Metric, Sum

    cumulative = AggregationTemporality.CUMULATIVE
    if family.type == "histogram":
        points = list(_distributions(family, began, now))
        if points:
            yield Metric(family.name, family.documentation, "s", Histogram(points, cumulative))
            if family.name in CONVENTIONS:
                named = list(_distributions(family, began, now, LABELS))
                yield Metric(CONVENTIONS[family.name], family.documentation, "s", Histogram(named, cumulative))
        return
    numbers = list(_numbers(family, began, now))
    if numbers and family.type == "counter":
        yield Metric(family.name, family.documentation, "1", Sum(numbers, cumulative, is_monotonic=True))
    elif numbers:
        yield Metric(family.name, family.documentation, "1", Gauge(numbers))


def _numbers(family: Family, began: int, now: int) -> Iterator[NumberDataPoint]:
    from opentelemetry.sdk.metrics.export import NumberDataPoint

    for sample in family.samples:
        if not sample.name.endswith("_created"):
            yield NumberDataPoint(dict(sample.labels), began, now, sample.value)


def _distributions(
    family: Family, began: int, now: int, names: dict[str, str] | None = None
) -> Iterator[HistogramDataPoint]:
    """One for each set of labels; `names`: other names of labels."""
    from opentelemetry.sdk.metrics.export import HistogramDataPoint

    found: dict[tuple[tuple[str, str], ...], dict[str, float]] = {}
    for sample in family.samples:
        labels = dict(sample.labels)
        bound = labels.pop("le", "")
        key = tuple(sorted(labels.items()))
        part = sample.name.removeprefix(family.name)
        found.setdefault(key, {})[f"{part}{bound}"] = sample.value
    for key, parts in found.items():
        bounds = [name.removeprefix("_bucket") for name in parts if name.startswith("_bucket")]
        counts = [int(parts[f"_bucket{bound}"]) for bound in bounds]
        yield HistogramDataPoint(
            attributes={(names or {}).get(name, name): value for name, value in key},
            start_time_unix_nano=began,
            time_unix_nano=now,
            count=counts[-1] if counts else 0,
            sum=parts.get("_sum", 0.0),
            bucket_counts=[count - before for before, count in zip([0, *counts], counts, strict=False)],
            explicit_bounds=[float(bound) for bound in bounds if bound != "+Inf"],
            min=cast("float", None),  # not measured: the field is left out
            max=cast("float", None),
        )
