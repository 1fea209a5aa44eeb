"""All errors that callers receive, as one tree; each class has its status, type and code.

::

    GatewayError
    ├── BadRequest 400 ─────────── InvalidJSON · MissingParameter · InvalidType · InvalidValue · OutOfRange
    │                              UnsupportedParameter · UnsupportedValue · UnknownParameter · ContextLengthExceeded
    │                              ContentFiltered · CostLimitExceeded
    ├── InvalidApiKey 401
    ├── Forbidden 403 ──────────── ModelNotPermitted · CallCancelled · InsufficientPermissions ── KeyRestricted
    ├── NotFound 404 ───────────── UnknownURL · ModelNotFound
    ├── MethodNotAllowed 405
    ├── RequestTimeout 408
    ├── Conflict 409 ───────────── AnswerLost
    ├── RequestTooLarge 413
    ├── UnsupportedContentType 415
    ├── UpgradeRequired 426
    ├── TooManyRequests 429 ────── RequestRateLimited · TokenRateLimited · ConcurrencyLimited
    │                              QuotaExhausted ── BalanceExhausted · SpendLimitExceeded · BudgetExceeded
    │                              MemberBudgetExceeded · SessionBudgetExceeded · BatchBudgetExceeded
    ├── InternalError 500
    ├── PriceUnreadable 500
    ├── Unavailable 503 ────────── StoreUnavailable · Draining · Overloaded · NoHealthyUpstream
    │                              DatabaseUnavailable ── DatabaseRefused
    ├── PeopleError 400 ────────── NotSignedIn ── SignInFailed
    │                              SignInLimited · SignInRefused · InvalidLink · AlreadyExists · LastOperator
    │                              SignInToAccept · AddressNotProved · AddressChanged
    │                              IdentityProviderUnavailable 503
    └── UpstreamError 502 ──────── UpstreamUnreachable · UpstreamRejected · UpstreamAuthError · UpstreamInvalidResponse
                                   UpstreamRateLimited · UpstreamOverloaded · UpstreamTimeout · UpstreamTruncated
                                   ProviderFailed

They may be raised anywhere; the handler's edge makes the error body. Messages are sent to callers: never put a key, an
upstream address or a stack trace into one. `detail` is for the operator's log and is never sent to a caller.
`retryable` of an upstream error says whether another target may be tried before the first byte.
"""

from __future__ import annotations

from typing import Any, ClassVar

from gateway.errors.base import GatewayError as GatewayError
from gateway.errors.limits import BalanceExhausted as BalanceExhausted
from gateway.errors.limits import BatchBudgetExceeded as BatchBudgetExceeded
from gateway.errors.limits import BudgetExceeded as BudgetExceeded
from gateway.errors.limits import ConcurrencyLimited as ConcurrencyLimited
from gateway.errors.limits import MemberBudgetExceeded as MemberBudgetExceeded
from gateway.errors.limits import QuotaExhausted as QuotaExhausted
from gateway.errors.limits import RequestRateLimited as RequestRateLimited
from gateway.errors.limits import SessionBudgetExceeded as SessionBudgetExceeded
from gateway.errors.limits import SpendLimitExceeded as SpendLimitExceeded
from gateway.errors.limits import TokenRateLimited as TokenRateLimited
from gateway.errors.limits import TooManyRequests as TooManyRequests
from gateway.errors.people import AddressChanged as AddressChanged
from gateway.errors.people import AddressNotProved as AddressNotProved
from gateway.errors.people import AlreadyExists as AlreadyExists
from gateway.errors.people import IdentityProviderUnavailable as IdentityProviderUnavailable
from gateway.errors.people import InvalidLink as InvalidLink
from gateway.errors.people import LastOperator as LastOperator
from gateway.errors.people import NotSignedIn as NotSignedIn
from gateway.errors.people import PeopleError as PeopleError
from gateway.errors.people import SignInFailed as SignInFailed
from gateway.errors.people import SignInLimited as SignInLimited
from gateway.errors.people import SignInRefused as SignInRefused
from gateway.errors.people import SignInToAccept as SignInToAccept
from gateway.errors.unavailable import DatabaseRefused as DatabaseRefused
from gateway.errors.unavailable import DatabaseUnavailable as DatabaseUnavailable
from gateway.errors.unavailable import Draining as Draining
from gateway.errors.unavailable import NoHealthyUpstream as NoHealthyUpstream
from gateway.errors.unavailable import Overloaded as Overloaded
from gateway.errors.unavailable import PriceUnreadable as PriceUnreadable
from gateway.errors.unavailable import StoreFate as StoreFate
from gateway.errors.unavailable import StoreUnavailable as StoreUnavailable
from gateway.errors.unavailable import Unavailable as Unavailable
from gateway.errors.upstream import FailureOrigin as FailureOrigin
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
    """The request is invalid."""

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
    """The model does not support this field."""

    default_code = "unsupported_parameter"


class UnsupportedValue(BadRequest):
    """The model supports the field, but not this value or form of it."""

    default_code = "unsupported_value"


class UnknownParameter(BadRequest):
    """An unknown field, if the operator rejects unknown fields."""

    default_code = "unknown_parameter"


class ContextLengthExceeded(BadRequest):
    """The prompt and the requested output exceed the context window of the model."""

    default_code = "context_length_exceeded"


class ContentFiltered(BadRequest):
    """The upstream's prompt filter refused the request."""

    default_code = "content_filter"
    default_message = "The request was refused by the model provider's content filter"


class CostLimitExceeded(BadRequest):
    """The request may cost more than one call of its key may; waiting does not help."""

    default_code = "cost_limit_exceeded"
    default_message = "This request may cost more than one call of this key may"


# 401 to 426 --------------------------------------------------------------------------------------------------------


class InvalidApiKey(GatewayError):
    """The key is missing, malformed, unknown, expired or revoked. The interface fixes the text.

    Only a key with white space around it gets `HAS_SPACE`, because no caller can see that.
    """

    HAS_SPACE = "The API key has white space around it, such as a line end. Send the key alone"

    status = 401
    type = "invalid_request_error"
    default_code = "invalid_api_key"
    default_message = "Missing or invalid API key"

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "WWW-Authenticate": "Bearer"}


class Forbidden(GatewayError):
    """The key is valid but not permitted to do this."""

    status = 403
    type = "invalid_request_error"
    default_code = "insufficient_permissions"
    default_message = "This key may not do this"


class ModelNotPermitted(Forbidden):
    """The model is not enabled for the caller, or does not exist; one answer for both hides which names exist."""

    default_code = "model_not_permitted"
    default_message = "Model not permitted"
    default_param = "model"


class InsufficientPermissions(Forbidden):
    """The account is disabled, or the key is restricted."""


class KeyRestricted(InsufficientPermissions):
    """The key may not call this endpoint, or not from this address.

    An admission raises it with the key's `scopes` if they were not checked; the pipeline checks them and asks again.
    """

    default_message = "This key is restricted"

    def __init__(self, message: str | None = None, *, scopes: str = "") -> None:
        super().__init__(message)
        self.scopes = scopes


class CallCancelled(Forbidden):
    """An operator ended the running call. What was delivered is charged. Clients do not repeat a 403 by themselves."""

    default_code = "request_cancelled"
    default_message = "The request was cancelled by an operator"


class NotFound(GatewayError):
    """The resource does not exist."""

    status = 404
    type = "invalid_request_error"
    default_code = "not_found"
    default_message = "Not found"


class UnknownURL(NotFound):
    """The path does not exist."""

    default_code = "unknown_url"
    default_message = "Unknown request URL"


class ModelNotFound(NotFound):
    """A model record that the caller cannot see."""

    default_code = "model_not_found"
    default_message = "The model does not exist or is not enabled for this account"


class MethodNotAllowed(GatewayError):
    """The path does not support the method."""

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
    """The request arrived too slowly."""

    status = 408
    type = "invalid_request_error"
    default_code = "request_timeout"
    default_message = "The request body did not arrive in time"
    close_connection = True


class Conflict(GatewayError):
    """Another request with the same Idempotency-Key is running; also for a hold that is gone or was changed."""

    status = 409
    type = "invalid_request_error"
    default_code = "conflict"
    default_message = "A request with this Idempotency-Key is in progress"
    should_retry = True
    default_wait: ClassVar[float | None] = 1.0


class AnswerLost(Conflict):
    """The call with this Idempotency-Key was charged, but its answer is not stored."""

    default_message = "The answer to this Idempotency-Key is not kept"
    should_retry = False
    default_wait = None


class RequestTooLarge(GatewayError):
    """The body exceeds its limit."""

    status = 413
    type = "invalid_request_error"
    default_code = "request_too_large"
    default_message = "The request body is too large"
    should_retry = False
    close_connection = True


class UnsupportedContentType(GatewayError):
    """The endpoint does not accept the media type or the content encoding."""

    status = 415
    type = "invalid_request_error"
    default_code = "unsupported_content_type"
    default_message = "Unsupported content type"


class UpgradeRequired(GatewayError):
    """A WebSocket that is not offered, or whose handshake is not complete."""

    status = 426
    type = "invalid_request_error"
    default_code = "upgrade_required"
    default_message = "WebSocket is switched off here. Send the request by HTTP"
    should_retry = False
    close_connection = True

    def headers(self) -> dict[str, str]:
        return {**super().headers(), "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}


# 500, 503 ----------------------------------------------------------------------------------------------------------


class InternalError(GatewayError):
    """A bug in the gateway or in a plugin."""
