"""The answer to one request: its headers, its status and its connection.

`send` answers with a complete body, `begin` with a status and first bytes; the rest is written to `exchange`. Sharp
edge: an answer that has begun cannot become an error any more; `send_error` then cuts the connection.
"""

from __future__ import annotations

import asyncio
import time

from gateway.errors import GatewayError, QuotaExhausted
from gateway.errors.error_form import OPENAI
from gateway.http_server.exchange import Exchange

JSON = "application/json"
FORBIDDEN = 403  # without the time: a request for a model that exists takes longer to refuse than for another


def fixed_headers(request_id: str) -> dict[str, str]:
    """The headers of every answer."""
    return {
        "x-request-id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "openai-version": "2020-10-01",
    }


class ResponseWriter:
    """One answer. Header names are written as in `headers`."""

    __slots__ = ("error_form", "exchange", "headers", "legacy_quota_code", "started", "status")

    def __init__(self, exchange: Exchange, request_id: str, *, legacy_quota_code: bool = False) -> None:
        self.exchange = exchange
        self.error_form = OPENAI
        self.started = time.monotonic()
        self.headers = fixed_headers(request_id)
        self.status = 0  # 0 until it was sent
        self.legacy_quota_code = legacy_quota_code

    def send(self, body: bytes, *, status: int = 200, media_type: str = JSON) -> None:
        """Answer with a complete body."""
        headers = self.headers
        headers["Content-Type"] = media_type
        if status != FORBIDDEN:
            self._stamp()
        if self.error_form is not OPENAI:
            self.error_form.adapt(headers)
        self.status = status
        self.exchange.answer(status, headers, body)

    def begin(self, status: int, first: bytes) -> asyncio.Future[None]:
        """Send the status, the headers and the first bytes; await the future for back-pressure."""
        self._stamp()
        if self.error_form is not OPENAI:
            self.error_form.adapt(self.headers)
        self.status = status
        return self.exchange.write_head(status, self.headers, first)

    def send_error(self, error: GatewayError) -> None:
        """Answer with the error body; cut an answer that has begun, so that it does not look complete."""
        if self.legacy_quota_code and isinstance(error, QuotaExhausted):
            error.code = "insufficient_quota"  # older clients test for this code
        if self.status:
            self.exchange.abort()
            return
        form, headers = self.error_form, self.headers
        headers.update(form.headers(error))
        self.send(form.body(error, headers["x-request-id"]), status=form.status(error))

    def replace(self, error: GatewayError) -> tuple[dict[str, str], bytes]:
        """Headers and body of an answer that the transport sends by itself, for a body it refuses."""
        form, headers = self.error_form, self.headers
        self.status = form.status(error)
        headers |= {"Content-Type": JSON, **form.headers(error)}
        form.adapt(headers)
        return headers, form.body(error, headers["x-request-id"])

    def milliseconds(self) -> float:
        """How long the request has taken up to now, to a microsecond."""
        return int((time.monotonic() - self.started) * 1_000_000) / 1000  # round(…, 3) takes 0.5 µs

    def _stamp(self) -> None:
        """Set the header with the milliseconds since the request."""
        self.headers["openai-processing-ms"] = str(round((time.monotonic() - self.started) * 1000))
