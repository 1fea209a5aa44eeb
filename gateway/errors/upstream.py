"""What a provider could not do: the branch of the error tree that provider plugins raise."""

from __future__ import annotations

from gateway.errors.base import GatewayError


class UpstreamError(GatewayError):
    """A provider could not answer; raised by provider plugins (docs/errors.md, "The provider")."""

    status = 502
    default_code = "upstream_error"
    default_message = "The model provider failed to answer"
    retryable = True


class UpstreamUnreachable(UpstreamError):
    """Connect, TLS or DNS failure, or a reset before the first byte."""

    default_message = "The model provider could not be reached"


class UpstreamRejected(UpstreamError):
    """The upstream found the request invalid: the caller's own 400, never retried elsewhere."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"
    default_message = "The model provider rejected the request"
    retryable = False


class UpstreamAuthError(UpstreamError):
    """The upstream refused the operator's credential; never shown as 401, or callers throw their own key away."""

    default_code = "upstream_auth_error"
    default_message = "The gateway's credential was refused by the model provider"
    should_retry = False


class UpstreamInvalidResponse(UpstreamError):
    """The upstream answered something that is not its dialect."""

    default_code = "upstream_invalid_response"
    default_message = "The model provider sent an invalid response"


class UpstreamRateLimited(UpstreamError):
    """The upstream asked to slow down."""

    status = 429
    type = "rate_limit_error"
    default_code = "slow_down"
    default_message = "The model provider is receiving too many requests; slow down"
    should_retry = True
    default_wait = 1.0


class UpstreamOverloaded(UpstreamError):
    """The upstream is overloaded, or its prepaid credit is gone."""

    status = 503
    type = "service_unavailable_error"
    default_code = "server_is_overloaded"
    default_message = "The model provider is overloaded"
    should_retry = True
    default_wait = 1.0


class UpstreamTimeout(UpstreamError):
    """No first byte, an idle stream, or the total deadline passed."""

    status = 504
    default_code = "upstream_timeout"
    default_message = "The model provider did not answer in time"


class UpstreamTruncated(UpstreamError):
    """The stream closed without the event that proves it complete."""

    default_code = "upstream_stream_truncated"
    default_message = "The model provider's stream ended before it was complete"


class ProviderFailed(UpstreamError):
    """The provider plugin's own code broke, and would again: another target may be tried, this one not twice."""
