"""The errors of providers: the branch of the error tree that provider plugins raise."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

from gateway.errors.base import GatewayError

#: Where a failure began: before the request was sent, so that no request can cause it; in the answer to it, which its
#: body may cause; or with the request, as a timeout or a 4xx, which any caller can cause.
FailureOrigin = Literal["connection", "answer", "request"]


class UpstreamError(GatewayError):
    """A provider did not answer; raised by provider plugins (docs/errors.md, "The provider")."""

    default_origin: ClassVar[FailureOrigin] = "answer"
    _origin: FailureOrigin | None = None
    asked_wait: float | None = None  # seconds that the upstream asked to wait; `retry_after` may be a default
    answered: int = 0  # the HTTP status of its answer; 0 if there was none

    status = 502
    default_code = "upstream_error"
    default_message = "The model provider failed to answer"
    retryable = True

    @property
    def origin(self) -> FailureOrigin:
        """Where the failure began; the circuit of the target counts it accordingly."""
        return self._origin or self.default_origin

    def began_at(self, origin: FailureOrigin) -> Self:
        """This error with another origin than that of its class."""
        self._origin = origin
        return self


class UpstreamUnreachable(UpstreamError):
    """Connect, TLS or DNS failed, or the connection was reset before the first byte."""

    default_message = "The model provider could not be reached"
    default_origin = "connection"


class UpstreamRejected(UpstreamError):
    """The upstream refused the request as invalid: a 400 for the caller; no other target is tried."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"
    default_message = "The model provider rejected the request"
    retryable = False


class UpstreamAuthError(UpstreamError):
    """The upstream refused the operator's credential. The status is never 401, which would concern the caller's key."""

    default_code = "upstream_auth_error"
    default_message = "The gateway's credential was refused by the model provider"
    should_retry = False


class UpstreamInvalidResponse(UpstreamError):
    """The answer of the upstream does not follow its dialect."""

    default_code = "upstream_invalid_response"
    default_message = "The model provider sent an invalid response"


class UpstreamRateLimited(UpstreamError):
    """The rate limit of the upstream is reached."""

    status = 429
    type = "rate_limit_error"
    default_code = "slow_down"
    default_message = "The model provider is receiving too many requests; slow down"
    limit = "rate"
    scope = "upstream"
    should_retry = True
    default_wait = 1.0


class UpstreamOverloaded(UpstreamError):
    """The upstream is overloaded, or the operator's prepaid credit there is used up."""

    status = 503
    type = "service_unavailable_error"
    default_code = "server_is_overloaded"
    default_message = "The model provider is overloaded"
    should_retry = True
    default_wait = 1.0


class UpstreamTimeout(UpstreamError):
    """A deadline passed: for the first byte, between two bytes, or in total."""

    status = 504
    default_code = "upstream_timeout"
    default_message = "The model provider did not answer in time"
    default_origin = "request"


class UpstreamTruncated(UpstreamError):
    """The stream ended without its end marker."""

    default_code = "upstream_stream_truncated"
    default_message = "The model provider's stream ended before it was complete"


class ProviderFailed(UpstreamError):
    """The provider plugin raised an unexpected exception. Another target may be tried; this one is not tried again."""
