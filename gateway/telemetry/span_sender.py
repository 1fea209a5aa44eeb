"""Makes the spans of ended calls and sends them by OTLP over HTTP. It blocks: `Tracing` runs it in its thread.

The attributes are those of OpenTelemetry's conventions for HTTP servers and for generative AI; what they have no name
for begins with `gateway.`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags
from opentelemetry.util.types import AttributeValue

from gateway.amounts import format_amount
from gateway.config.secret_headers import reveal_headers
from gateway.config.telemetry_settings import TelemetrySettings
from gateway.telemetry.call_trace import TracedAttempt
from gateway.telemetry.ended_call import EndedCall
from gateway.version import __version__

SEND_WITHIN = 10.0  # seconds, with all attempts
SCOPE = InstrumentationScope("model-gateway", __version__)
#: The operation by the endpoint's name; the conventions have no name for images, speech and transcriptions.
OPERATIONS = {
    "chat": "chat",
    "responses": "chat",
    "messages": "chat",
    "gemini": "generate_content",
    "embeddings": "embeddings",
    "images": "image_generation",
    "speech": "speech",
    "transcription": "transcription",
}
Attributes = dict[str, AttributeValue]


def resource_of(settings: TelemetrySettings) -> Resource:
    """What the spans and metrics are of."""
    own = {"service.name": settings.service, "service.version": __version__}
    return Resource.create({**own, **settings.attributes})


class SpanSender:
    """Sends spans to one collector."""

    def __init__(self, settings: TelemetrySettings) -> None:
        self._resource = resource_of(settings)
        self._exporter = OTLPSpanExporter(
            endpoint=f"{settings.endpoint.rstrip('/')}/v1/traces",
            headers=reveal_headers(settings.headers),
            timeout=SEND_WITHIN,
        )

    def send(self, calls: Sequence[EndedCall]) -> str:
        """Send the spans of these calls; returns why that failed, or an empty text."""
        spans = [span for call in calls for span in self.spans(call)]
        if not spans:
            return ""
        result = self._exporter.export(spans)
        return "" if result is SpanExportResult.SUCCESS else "the collector did not take them"

    def close(self) -> None:
        """Close the connection."""
        self._exporter.shutdown()  # type: ignore[no-untyped-call]

    def spans(self, call: EndedCall) -> Iterator[ReadableSpan]:
        """The span of the call, then one for each attempt."""
        trace, record = call.trace, call.record
        parent = None
        if trace.parent is not None:
            parent = SpanContext(trace.trace_id, trace.parent.span_id, is_remote=True, trace_flags=TraceFlags(1))
        own = SpanContext(trace.trace_id, trace.span_id, is_remote=False, trace_flags=TraceFlags(1))
        failed = record.outcome not in ("ok", "client_closed")
        yield ReadableSpan(
            name=f"POST {trace.path}",
            context=own,
            parent=parent,
            resource=self._resource,
            attributes=_of_call(call),
            kind=SpanKind.SERVER,
            status=Status(StatusCode.ERROR, record.outcome) if failed and record.status >= 500 else Status(),
            start_time=call.started,
            end_time=call.ended,
            instrumentation_scope=SCOPE,
        )
        for number, attempt in enumerate(trace.attempts):
            serves = not attempt.ended and number == len(trace.attempts) - 1
            yield ReadableSpan(
                name=f"{OPERATIONS.get(record.endpoint, record.endpoint)} {attempt.model}",
                context=SpanContext(trace.trace_id, attempt.span_id, is_remote=False, trace_flags=TraceFlags(1)),
                parent=own,
                resource=self._resource,
                attributes=_of_attempt(call, attempt, serves=serves),
                kind=SpanKind.CLIENT,
                status=Status(StatusCode.ERROR, attempt.code) if attempt.code else Status(),
                start_time=call.time_of(attempt.started),
                end_time=call.time_of(attempt.ended) if attempt.ended else call.ended,
                instrumentation_scope=SCOPE,
            )


def _of_call(call: EndedCall) -> Attributes:
    trace, record = call.trace, call.record
    found: Attributes = {
        "http.request.method": "POST",
        "http.route": trace.path,
        "url.path": trace.path,
        "http.response.status_code": record.status,
        "gateway.request_id": record.request_id,
        "gateway.account": record.account,
        "gateway.key": record.key,
        "gateway.outcome": record.outcome,
        "gateway.cost": format_amount(record.cost),
        "gateway.attempts": record.attempts,
        "gateway.stream": record.stream,
        **_of_model(call),
        **_usage(call),
    }
    if record.outcome not in ("ok", "client_closed"):
        found["error.type"] = record.outcome
    for name, value in (("user", record.user), ("session", record.session)):
        if value:
            found[f"gateway.{name}"] = value
    if record.session:
        found["gen_ai.conversation.id"] = record.session
    for name, value in (record.tags or {}).items():
        found[f"gateway.tag.{name}"] = value
    for name, text in zip(("gen_ai.input.messages", "gen_ai.output.messages"), call.texts, strict=True):
        if text:
            found[name] = text
    if record.first_token is not None:
        found["gen_ai.response.time_to_first_chunk"] = record.first_token
    return found


def _of_model(call: EndedCall) -> Attributes:
    record = call.record
    found: Attributes = {
        "gen_ai.operation.name": OPERATIONS.get(record.endpoint, record.endpoint),
        "gen_ai.request.model": record.model,
    }
    if record.served_model:
        found["gen_ai.response.model"] = record.served_model
    if record.provider:
        found["gen_ai.provider.name"] = record.provider
    return found


def _usage(call: EndedCall) -> Attributes:
    record = call.record
    found: Attributes = {
        "gen_ai.usage.input_tokens": record.tokens_in,
        "gen_ai.usage.output_tokens": record.tokens_out,
    }
    usage = record.usage
    if usage.in_cached or usage.in_audio_cached:
        found["gen_ai.usage.cache_read.input_tokens"] = usage.in_cached + usage.in_audio_cached
    if written := usage.in_cache_write_short + usage.in_cache_write_long:
        found["gen_ai.usage.cache_creation.input_tokens"] = written
    return found


def _of_attempt(call: EndedCall, attempt: TracedAttempt, *, serves: bool) -> Attributes:
    record = call.record
    found: Attributes = {
        "gen_ai.operation.name": OPERATIONS.get(record.endpoint, record.endpoint),
        "gen_ai.provider.name": attempt.provider,
        "gen_ai.request.model": attempt.model,
    }
    if serves:
        found["gen_ai.response.model"] = record.upstream_model
    if attempt.code:
        found["error.type"] = attempt.code
    return found
