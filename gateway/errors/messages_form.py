"""Errors and headers in Anthropic's shape (docs/errors.md, "Anthropic's form")."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from gateway.errors import ContextLengthExceeded, GatewayError, Overloaded, QuotaExhausted, UpstreamOverloaded
from gateway.errors.error_form import ErrorForm

PAYMENT_REQUIRED, OVERLOADED = 402, 529
TYPES: Mapping[int, str] = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}
#: Claude Code shortens its conversation when an error says this.
TOO_LONG = "prompt is too long"

_RATES = ("requests", "tokens")
_DURATION = re.compile(r"(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+(?:\.\d+)?)(ms|s))?")
_encoder = msgspec.json.Encoder()


class MessagesErrors(ErrorForm):
    """Anthropic's shape."""

    def status(self, error: GatewayError) -> int:
        if isinstance(error, QuotaExhausted):
            return PAYMENT_REQUIRED  # not 429: the client would send the request again
        if isinstance(error, UpstreamOverloaded | Overloaded):
            return OVERLOADED
        return error.status

    def document(self, error: GatewayError, request_id: str) -> dict[str, Any]:
        """The error document, not encoded."""
        status, message = self.status(error), error.message
        kind = TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")
        if isinstance(error, ContextLengthExceeded) and TOO_LONG not in message:
            message = f"{TOO_LONG}: {message}"
        details = {"error_code": error.code, "param": error.param}
        return {
            "type": "error",
            "error": {"type": kind, "message": message, "details": details},
            "request_id": request_id,
        }

    def body(self, error: GatewayError, request_id: str) -> bytes:
        return _encoder.encode(self.document(error, request_id))

    def adapt(self, headers: dict[str, str]) -> None:
        headers["request-id"] = headers["x-request-id"]
        headers.pop("openai-version", None)
        for kind in _RATES:
            limit = headers.pop(f"x-ratelimit-limit-{kind}", None)
            left = headers.pop(f"x-ratelimit-remaining-{kind}", None)
            reset = headers.pop(f"x-ratelimit-reset-{kind}", None)
            if limit is not None and left is not None and reset is not None:
                headers[f"anthropic-ratelimit-{kind}-limit"] = limit
                headers[f"anthropic-ratelimit-{kind}-remaining"] = left
                headers[f"anthropic-ratelimit-{kind}-reset"] = _time_after(reset)


def _time_after(duration: str) -> str:
    """The time at which a duration such as `1h0m12s` or `120ms` has passed, in UTC, rounded up to a second."""
    found = _DURATION.fullmatch(duration)
    hours, minutes, rest, unit = found.groups() if found is not None else (None, None, None, None)
    seconds = float(rest or 0) / (1000 if unit == "ms" else 1)
    wait = timedelta(hours=int(hours or 0), minutes=int(minutes or 0), seconds=seconds)
    when = datetime.now(UTC) + wait + timedelta(microseconds=999_999)
    return when.strftime("%Y-%m-%dT%H:%M:%SZ")


MESSAGES_ERRORS = MessagesErrors()
