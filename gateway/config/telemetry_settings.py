"""[telemetry]: traces and metrics by OTLP, the protocol of OpenTelemetry; [metrics] and [log]."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

from gateway.config.secret_headers import SecretHeaders
from gateway.config.values import Port

Endpoint = Annotated[str, Meta(pattern=r"^(https?://\S+)?$(?!\n)", max_length=2048)]


class TelemetrySettings(Struct, frozen=True, kw_only=True):
    """[telemetry]: where spans and metrics go, and of which calls."""

    endpoint: Endpoint = ""  # without `/v1/traces`
    headers: SecretHeaders = {}
    traces: bool = True
    metrics: bool = False
    sample: Annotated[float, Meta(ge=0, le=1)] = 1.0  # of the calls about which their callers have not decided
    follow_callers: bool = True
    content: bool = False  # texts of prompts and answers are in the spans
    service: Annotated[str, Meta(min_length=1, max_length=256)] = "model-gateway"
    attributes: dict[str, str] = {}  # of the resource
    metrics_interval: Annotated[float, Meta(ge=1, le=3600)] = 60.0  # seconds

    @property
    def traces_calls(self) -> bool:
        """Whether spans of calls are made."""
        return bool(self.endpoint) and self.traces

    @property
    def sends_metrics(self) -> bool:
        """Whether metrics are sent."""
        return bool(self.endpoint) and self.metrics


class MetricsSettings(Struct, frozen=True, kw_only=True):
    """[metrics]: the side port."""

    host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    port: Port = 9090
    max_models: Annotated[int, Meta(ge=1, le=100_000)] = 500


class LogSettings(Struct, frozen=True, kw_only=True):
    """[log]: what is written to stderr."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    access: bool = True
    form: Literal["auto", "text", "json"] = "auto"
