"""A collector that takes OTLP over HTTP and keeps what it got.

::

    async with Collector() as collector:
        …                                       # [telemetry] endpoint = collector.url
        spans = await collector.spans(2)
"""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

from aiohttp import web
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.polling import until


def value_of(value: AnyValue) -> Any:
    """The value of an attribute."""
    return getattr(value, value.WhichOneof("value") or "")


def attributes_of(pairs: Any) -> dict[str, Any]:
    """Attributes by name."""
    found: list[KeyValue] = list(pairs)
    return {one.key: value_of(one.value) for one in found}


class Collector:
    """The server; an async context manager."""

    def __init__(self) -> None:
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.answers = asyncio.Event()  # it is silent while this is not set
        self.answers.set()
        self.url = ""
        self._runner: web.AppRunner | None = None

    async def __aenter__(self) -> Collector:
        app = web.Application(client_max_size=1 << 26)
        app.router.add_post("/v1/traces", self._take_traces)
        app.router.add_post("/v1/metrics", self._take_metrics)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1, handler_cancellation=True)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *error: object) -> None:
        self.answers.set()
        assert self._runner is not None
        await self._runner.cleanup()

    async def _body(self, request: web.Request) -> bytes:
        self.headers.append({name.lower(): value for name, value in request.headers.items()})
        body = await request.read()
        await self.answers.wait()
        return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body

    async def _take_traces(self, request: web.Request) -> web.Response:
        taken = ExportTraceServiceRequest.FromString(await self._body(request))
        if self.status == 200:
            self.traces.append(taken)
        return web.Response(status=self.status)

    async def _take_metrics(self, request: web.Request) -> web.Response:
        self.metrics.append(ExportMetricsServiceRequest.FromString(await self._body(request)))
        return web.Response(status=self.status)

    @property
    def spans_so_far(self) -> list[Span]:
        """All spans."""
        return [
            span
            for request in self.traces
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    async def spans(self, count: int) -> list[Span]:
        """All spans, once there are so many."""
        await until(lambda: len(self.spans_so_far) >= count)
        return self.spans_so_far

    def metrics_so_far(self) -> dict[str, Metric]:
        """The metrics of the last transmission, by name."""
        return {
            metric.name: metric
            for resource in self.metrics[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
