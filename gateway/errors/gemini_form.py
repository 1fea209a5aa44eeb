"""Errors in Google's shape (docs/errors.md, "Google's shape")."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.errors import QuotaExhausted
from gateway.errors.base import GatewayError
from gateway.errors.error_form import ErrorForm

#: `status` by the HTTP status; any other from 500 on is INTERNAL, and any other below it INVALID_ARGUMENT.
STATUSES: Mapping[int, str] = {
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
PAYMENT_REQUIRED = 402  # not 429: Google's clients would send the request again
INFO, RETRY = "type.googleapis.com/google.rpc.ErrorInfo", "type.googleapis.com/google.rpc.RetryInfo"

_encoder = msgspec.json.Encoder()


class GeminiErrors(ErrorForm):
    """Google's shape. The gateway's own code is in `details`, as the reason of an ErrorInfo."""

    def status(self, error: GatewayError) -> int:
        return PAYMENT_REQUIRED if isinstance(error, QuotaExhausted) else error.status

    def document(self, error: GatewayError) -> dict[str, Any]:
        """The error document, not encoded."""
        status = self.status(error)
        details: list[dict[str, Any]] = []
        if error.code is not None:
            metadata = {"param": error.param} if error.param is not None else {}
            details.append({"@type": INFO, "reason": error.code, "domain": "gateway", "metadata": metadata})
        if error.retry_after is not None:
            details.append({"@type": RETRY, "retryDelay": f"{error.retry_after:.3f}s"})
        name = STATUSES.get(status, "INVALID_ARGUMENT" if status < 500 else "INTERNAL")
        return {"error": {"code": status, "message": error.message, "status": name, "details": details}}

    def body(self, error: GatewayError, request_id: str) -> bytes:
        return _encoder.encode(self.document(error))


GEMINI_ERRORS = GeminiErrors()
