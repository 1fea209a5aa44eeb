"""Every error a caller can meet, as one tree; each class knows its status, type and code.

::

    GatewayError
    ├── BadRequest 400 ─────────── InvalidJSON · MissingParameter · InvalidType · InvalidValue · OutOfRange
    │                              UnsupportedParameter · UnsupportedValue · UnknownParameter · ContextLengthExceeded
    │                              ContentFiltered
    ├── InvalidApiKey 401
    ├── Forbidden 403 ──────────── ModelNotPermitted · InsufficientPermissions
    ├── NotFound 404 ───────────── UnknownURL · ModelNotFound
    ├── MethodNotAllowed 405
    ├── RequestTimeout 408
    ├── Conflict 409 ───────────── AnswerLost
    ├── RequestTooLarge 413
    ├── UnsupportedContentType 415
    ├── TooManyRequests 429 ────── RequestRateLimited · TokenRateLimited · ConcurrencyLimited
    │                              QuotaExhausted ── BalanceExhausted · SpendLimitExceeded · BudgetExceeded
    ├── InternalError 500
    ├── Unavailable 503 ────────── StoreUnavailable · Draining · Overloaded · NoHealthyUpstream
    └── UpstreamError 502 ──────── UpstreamUnreachable · UpstreamRejected · UpstreamAuthError · UpstreamInvalidResponse
                                   UpstreamRateLimited · UpstreamOverloaded · UpstreamTimeout · UpstreamTruncated
                                   ProviderFailed

Raise them anywhere; the handler's edge turns them into the one error body. Messages go to callers: never put a key,
an upstream address or a stack trace into one. `detail` is for the operator's log and never leaves the process.
`retryable` on the upstream branch says whether another target may be tried before the first byte.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Any, ClassVar

from gateway.errors.base import MAX_MESSAGE as MAX_MESSAGE
from gateway.errors.base import ErrorBody as ErrorBody
from gateway.errors.base import ErrorEnvelope as ErrorEnvelope
from gateway.errors.base import GatewayError as GatewayError
from gateway.errors.upstream import ProviderFailed as ProviderFailed
from gateway.errors.upstream import UpstreamAuthError as UpstreamAuthError
from gateway.errors.upstream import UpstreamError as UpstreamError
from gateway.errors.upstream import UpstreamInvalidResponse as UpstreamInvalidResponse
from gateway.errors.upstream import UpstreamOverloaded as UpstreamOverloaded
from gateway.errors.upstream import UpstreamRateLimited as UpstreamRateLimited
from gateway.errors.upstream import UpstreamRejected as UpstreamRejected
from gateway.errors.upstream import UpstreamTimeout as UpstreamTimeout
from gateway.errors.upstream import UpstreamTruncated as UpstreamTruncated
from gateway.errors.upstream import UpstreamUnreachable as UpstreamUnreachable

# 400 ---------------------------------------------------------------------------------------------------------------


class BadRequest(GatewayError):
    """The request itself cannot be served as written."""

    status = 400
    type = "invalid_request_error"
    default_code = "invalid_value"
    default_message = "The request is not valid"


class InvalidJSON(BadRequest):
    """The body is not JSON, not UTF-8, nested too deep, or not an object."""

    default_code = "invalid_json"
    default_message = "The request body is not valid JSON"


class MissingParameter(BadRequest):
    """A required field is absent."""

    default_code = "missing_required_parameter"


class InvalidType(BadRequest):
    """A field has the wrong JSON type."""

    default_code = "invalid_type"


class InvalidValue(BadRequest):
    """A field has a value outside its enumeration, or two fields contradict each other."""


class OutOfRange(BadRequest):
    """A number, string or array is too small or too large; `code` says which."""


class UnsupportedParameter(BadRequest):
    """The chosen model cannot do what this field asks."""

    default_code = "unsupported_parameter"


class UnsupportedValue(BadRequest):
    """The chosen model knows the field, but not this value or form of it."""

    default_code = "unsupported_value"


class UnknownParameter(BadRequest):
    """A field nobody knows, in reject mode."""

    default_code = "unknown_parameter"


class ContextLengthExceeded(BadRequest):
    """Prompt and requested output do not fit the model's window."""

    default_code = "context_length_exceeded"


class ContentFiltered(BadRequest):
    """The upstream's prompt filter refused the request."""

    default_code = "content_filter"
    default_message = "The request was refused by the model provider's content filter"


# 401 to 415 --------------------------------------------------------------------------------------------------------


class InvalidApiKey(GatewayError):
    """No key, a malformed, unknown, expired or revoked one. The text is fixed by the interface."""

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"
    default_message = "Missing or invalid API key"

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "WWW-Authenticate": "Bearer"}


class Forbidden(GatewayError):
    """A valid key that may not do this."""

    status = 403
    type = "invalid_request_error"
    default_code = "insufficient_permissions"
    default_message = "This key may not do this"


class ModelNotPermitted(Forbidden):
    """The model is not enabled for the account or group, or does not exist: one answer, so names cannot be probed."""

    default_code = "model_not_permitted"
    default_message = "Model not permitted"
    default_param = "model"


class InsufficientPermissions(Forbidden):
    """The account is disabled, or the key is restricted."""


class NotFound(GatewayError):
    """No such resource."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"
    default_message = "Not found"


class UnknownURL(NotFound):
    """No such path."""

    default_code = "unknown_url"
    default_message = "Unknown request URL"


class ModelNotFound(NotFound):
    """A model record that the caller cannot see."""

    default_code = "model_not_found"
    default_message = "The model does not exist or is not enabled for this account"


class MethodNotAllowed(GatewayError):
    """The path exists, the method does not."""

    status = 405
    type = "invalid_request_error"
    default_code = "method_not_allowed"
    default_message = "Method not allowed"

    def __init__(self, allow: str) -> None:
        super().__init__()
        self.allow = allow

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "Allow": self.allow}

    def __reduce__(self) -> tuple[Any, ...]:
        return (type(self), (self.allow,))


class RequestTimeout(GatewayError):
    """The caller sent its body too slowly."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"
    default_message = "The request body did not arrive in time"
    close_connection = True


class Conflict(GatewayError):
    """The same Idempotency-Key is in flight."""

    status = 409
    type = "invalid_request_error"
    default_code = "conflict"
    default_message = "A request with this Idempotency-Key is in progress"
    should_retry = True
    default_wait: ClassVar[float | None] = 1.0


class AnswerLost(Conflict):
    """The call that had this Idempotency-Key was charged, but its answer is not kept."""

    default_message = "The answer to this Idempotency-Key is not kept"
    should_retry = False
    default_wait = None


class RequestTooLarge(GatewayError):
    """The body is over its limit."""

    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"
    default_message = "The request body is too large"
    should_retry = False
    close_connection = True


class UnsupportedContentType(GatewayError):
    """Media type or content encoding that this endpoint does not take."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_content_type"
    default_message = "Unsupported content type"


# 429 ---------------------------------------------------------------------------------------------------------------


class TooManyRequests(GatewayError):
    """A limit said no; nothing was consumed."""

    status = 429
    type = "requests"
    default_code = "rate_limit_exceeded"
    default_message = "Rate limit reached"
    should_retry = True
    rate_headers: Mapping[str, str] = MappingProxyType({})  # the x-ratelimit headers of the limit that said no

    def headers(self) -> dict[str, str]:
        return {**super().headers(), **self.rate_headers}


class RequestRateLimited(TooManyRequests):
    """Requests per minute."""

    default_message = "Rate limit reached for requests"


class TokenRateLimited(TooManyRequests):
    """Tokens per minute."""

    type = "tokens"
    default_message = "Rate limit reached for tokens"


class ConcurrencyLimited(TooManyRequests):
    """Too many requests at once."""

    default_code = "concurrency_limit_exceeded"
    default_message = "Too many requests at the same time"
    default_wait = 1.0


class QuotaExhausted(TooManyRequests):
    """Money said no. SDKs retry any other 429, so they are told not to."""

    type = "insufficient_quota"
    default_code = "credit_balance_exhausted"
    default_message = "The account balance does not cover this request"
    should_retry = False


class BalanceExhausted(QuotaExhausted):
    """The account's balance does not cover the hold."""


class SpendLimitExceeded(QuotaExhausted):
    """The account's or group's spend cap is reached."""

    default_code = "organization_spend_limit_exceeded"
    default_message = "The account's spend limit is reached"


class BudgetExceeded(QuotaExhausted):
    """The key's budget is reached."""

    default_code = "project_spend_limit_exceeded"
    default_message = "The key's budget is reached"


# 500, 503 ----------------------------------------------------------------------------------------------------------


class InternalError(GatewayError):
    """A bug in the gateway or in a plugin."""


class Unavailable(GatewayError):
    """The gateway cannot serve now; another try may succeed. Rejection is not failure: never a 429 for this."""

    status = 503
    type = "service_unavailable_error"
    default_code = "service_unavailable"
    default_message = "The service is temporarily unavailable"
    should_retry = True
    default_wait = 1.0


class StoreFate(Enum):
    """What became of a store command that failed; the values are the log's words."""

    NEVER_SENT = "never sent"
    REFUSED = "refused"  # the server executed nothing of it
    UNKNOWN = "sent, fate unknown"  # it may have been executed


class StoreUnavailable(Unavailable):
    """The store that holds keys and balances is out of reach; `fate` says whether it may have done what was asked."""

    def __init__(
        self, message: str | None = None, *, detail: str | None = None, fate: StoreFate = StoreFate.UNKNOWN
    ) -> None:
        super().__init__(message, detail=detail)
        self.fate = fate

    def log_text(self) -> str:
        return f"{self.fate.value}: {self.detail}" if self.detail else self.fate.value


class Draining(Unavailable):
    """This process is shutting down."""

    close_connection = True


class Overloaded(Unavailable):
    """This worker's loop runs late, or its memory is full: refused before anything is done for the request."""

    default_code = "server_is_overloaded"
    default_message = "The gateway is overloaded; try again in a moment"


class NoHealthyUpstream(Unavailable):
    """Every target of the model is cooling down."""

    default_message = "No healthy upstream for this model"
