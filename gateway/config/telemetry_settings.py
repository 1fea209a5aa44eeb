"""[telemetry]: traces and metrics by OTLP, the protocol of OpenTelemetry."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.config.secret_headers import SecretHeaders

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
