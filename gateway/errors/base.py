"""The base of the error tree: the fields of every error, and its form on the wire."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import msgspec
from msgspec import UNSET, UnsetType

MAX_MESSAGE = 2000  # characters
LONGEST_WAIT = 86_400.0  # seconds; a longer wait is a mistake

_encoder = msgspec.json.Encoder()


class GatewayError(Exception):
    """Base of the tree: an error with its status, headers and body."""

    status: ClassVar[int] = 500  # of the answer to the caller
    type: ClassVar[str] = "server_error"  # for the caller
    default_code: ClassVar[str | None] = "internal_error"  # `code` of an error that is raised without one
    default_message: ClassVar[str] = "The gateway met an internal error"  # `message`, the same
    default_param: ClassVar[str | None] = None  # `param`, the same
    default_wait: ClassVar[float | None] = None  # seconds of `retry_after` for an error that is raised without one
    should_retry: ClassVar[bool | None] = None  # the header x-should-retry; None sends none
    close_connection: ClassVar[bool] = False  # the answer ends the caller's connection
    # For the operator's log and metrics only.
    limit: str = ""  # what is used up: rpm, tpm, concurrency, balance, budget, spend, load, rate, circuit
    scope: str = ""  # whose limit it is: key, account, gateway, upstream
    upstream_request_id: str = ""  # the upstream's own id of the failed request
    retryable: ClassVar[bool] = False  # another target may be tried before the first byte

    def __init__(
        self,
        message: str | None = None,
        *,
        code: str | None = None,
        param: str | None = None,
        retry_after: float | UnsetType | None = UNSET,
        detail: str | None = None,
    ) -> None:
        self.message: str = (message or self.default_message)[:MAX_MESSAGE]  # for the caller
        self.code: str | None = code or self.default_code  # for the caller: a word that programs compare
        self.param: str | None = param or self.default_param  # the field of the request that causes the error
        self.detail = detail  # for the operator's log only
        self._retry_after = _seconds(self.default_wait if retry_after is UNSET else retry_after)
        super().__init__(self.message)

    @property
    def retry_after(self) -> float | None:
        """Seconds that the caller is asked to wait. It can be set; a value that is no wait becomes None."""
        return self._retry_after

    @retry_after.setter
    def retry_after(self, seconds: float | None) -> None:
        self._retry_after = _seconds(seconds)

    def envelope(self) -> dict[str, dict[str, str | None]]:
        """The JSON document of this error, not encoded: an object `error` with message, type, param and code."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}

    def body(self) -> bytes:
        """The JSON error document, UTF-8."""
        return _encoder.encode(self.envelope())

    def headers(self) -> dict[str, str]:
        """The response headers of this error."""
        headers: dict[str, str] = {}
        if self.retry_after is not None:
            headers["Retry-After"] = str(max(1, math.ceil(self.retry_after)))
            headers["retry-after-ms"] = str(max(1, math.ceil(self.retry_after * 1000)))
        retry = self._should_retry()
        if retry is not None:
            headers["x-should-retry"] = "true" if retry else "false"
        if self.close_connection:
            headers["Connection"] = "close"
        return headers

    def log_text(self) -> str:
        """The text in the operator's log beside the code: `detail`, or "" without one."""
        return self.detail or ""

    def _should_retry(self) -> bool | None:
        # For a wait over 60 s, the Node SDK uses its own short backoff and sends many requests. So no retry is allowed.
        if self.should_retry and self.retry_after is not None and self.retry_after > 60:
            return False
        return self.should_retry

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.message,))


def _seconds(wait: object) -> float | None:
    """A wait between 0 and `LONGEST_WAIT`, or None for any other value: plugins raise these errors with any value."""
    if not isinstance(wait, int | float) or not 0.0 <= wait < math.inf:
        return None
    return min(wait, LONGEST_WAIT)
