"""What every endpoint shares: the request id, the caller's key, the fixed headers, and the one error body.

`BaseHandler` writes any error of the tree, and Tornado's own, in the wire's shape. `KeyedHandler` adds the rule that comes
before all others: under /v1 nothing is answered to anyone whose key is not known. Sharp edge: a worker remembers only whose
key it is, never that it is still good; a path that does not end in `ledger.admit` must call `confirm()`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable
from types import TracebackType
from typing import TYPE_CHECKING, Any

import msgspec
from tornado.web import Application, HTTPError, RequestHandler

from gateway import errors
from gateway.auth import ApiKey, KeyView, bearer
from gateway.errors import GatewayError
from gateway.ids import request_id
from gateway.log import AccessLine, access, gateway_log

if TYPE_CHECKING:
    from gateway.server import Gateway

JSON = "application/json"
METHODS = ("GET", "HEAD", "POST", "DELETE", "PATCH", "PUT", "OPTIONS")
_CLIENT_REQUEST_ID = re.compile(r"[\x20-\x7e]{1,512}")
_encoder = msgspec.json.Encoder()


class BaseHandler(RequestHandler):
    """A handler with a request id, fixed headers and the one error body."""

    endpoint = ""  # the name in metrics

    def initialize(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.started = time.monotonic()
        self.outcome = "ok"
        self.detail = ""
        self.key: ApiKey | None = None
        self.failure: GatewayError | None = None

    def set_default_headers(self) -> None:
        # Tornado clears a handler's headers before every error answer, so the request id must outlive that.
        if not hasattr(self, "request_id"):
            self.request_id = request_id()
        self.set_header("x-request-id", self.request_id)
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")
        self.set_header("openai-version", "2020-10-01")
        self.clear_header("Server")
        client_id = self.client_request_id()
        if client_id:
            self.set_header("X-Client-Request-Id", client_id)
        if getattr(self, "key", None) is not None:
            self.set_header("openai-organization", self.key.account)  # type: ignore[union-attr]

    def client_request_id(self) -> str:
        """The caller's own id for this request, if it is one we can echo."""
        value = self.request.headers.get("X-Client-Request-Id")
        return value if value and _CLIENT_REQUEST_ID.fullmatch(value) else ""

    def finish_json(self, document: Any) -> None:
        """Answer with `document` as JSON."""
        self.finish_bytes(_encoder.encode(document))

    def finish_bytes(self, body: bytes) -> None:
        """Answer with an encoded JSON document."""
        self.set_header("Content-Type", JSON)
        self.tell_time()
        self.finish(body)

    def tell_time(self) -> None:
        """Say how long it took up to now, in milliseconds."""
        self.set_header("openai-processing-ms", str(round((time.monotonic() - self.started) * 1000)))

    def compute_etag(self) -> None:
        """No ETags: answers are never cached."""

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with the error body; every error of this server passes here."""
        _, exception, _ = kwargs.get("exc_info", (None, None, None))
        error = self.as_gateway_error(status_code, exception)
        self.failure = error
        self.outcome, self.detail = error.code or "error", error.detail or ""
        self.set_status(error.status)
        for name, value in error.headers().items():
            self.set_header(name, value)
        self.finish_bytes(error.body())

    def as_gateway_error(self, status_code: int, exception: BaseException | None) -> GatewayError:
        """The error of our tree that stands for whatever was raised."""
        if isinstance(exception, GatewayError):
            return exception
        status = exception.status_code if isinstance(exception, HTTPError) else status_code
        if status == 405:
            return errors.MethodNotAllowed(self.allowed_methods())
        if status == 404:
            return errors.UnknownURL(f"Unknown request URL: {self.request.method} {self.request.path[:200]}")
        if status == 413:
            return errors.RequestTooLarge()
        if 400 <= status < 500:
            return errors.BadRequest()
        return errors.InternalError()

    def allowed_methods(self) -> str:
        """The methods this handler implements, for `Allow`."""
        return ", ".join(name for name in METHODS if self.implements(name))

    def implements(self, method: str) -> bool:
        """Whether this handler answers `method`, rather than inheriting a refusal."""
        mine = getattr(type(self), method.lower())
        refusals = (getattr(kind, method.lower()) for kind in (RequestHandler, KeyedHandler))
        return all(mine is not refusal for refusal in refusals)

    def log_exception(
        self,
        typ: type[BaseException] | None,
        value: BaseException | None,
        tb: TracebackType | None,
    ) -> None:
        """Only what nobody expected is an operator's business; refusals are in the access log."""
        if not isinstance(value, (GatewayError, HTTPError)):
            gateway_log.error("%s failed in %s", self.request_id, type(self).__name__, exc_info=value)

    def on_finish(self) -> None:
        """Write the access line, and count what no settlement has counted."""
        if not self.counted():
            duration = time.monotonic() - self.started
            self.gateway.metrics.refused(self.endpoint or "other", "unknown", self.outcome, duration)
        access(self.access_line())

    def counted(self) -> bool:
        """Whether this request is in the metrics already."""
        return False

    def access_line(self) -> AccessLine:
        """This request as the access log shows it."""
        return AccessLine(
            request_id=self.request_id,
            method=self.request.method or "",
            path=self.request.path,
            status=self.get_status(),
            ms=round((time.monotonic() - self.started) * 1000, 3),
            outcome=self.outcome,
            account=self.key.account if self.key else "",
            key=self.key.id if self.key else "",
            client_request_id=self.client_request_id(),
            detail=self.detail,
        )


class KeyedHandler(BaseHandler):
    """A handler that serves only callers with a key."""

    def prepare(self) -> Awaitable[None] | None:
        """Authenticate before anything else is looked at, the body included."""
        headers = self.request.headers
        credential = bearer(headers.get("Authorization"), headers.get("api-key"))
        key = self.gateway.auth.cached(credential)
        return self._known(key) if key is not None else self._authenticate(credential)

    async def _authenticate(self, credential: str | None) -> None:
        pending = self._known(await self.gateway.auth.authenticate(credential))
        if pending is not None:
            await pending

    def _known(self, key: ApiKey) -> Awaitable[None] | None:
        self.key = key
        self.set_header("openai-organization", key.account)
        return self.prepared()

    def prepared(self) -> Awaitable[None] | None:
        """The key is known; what an endpoint checks before the body arrives."""
        return None

    async def refuse_method(self, *_: str) -> None:
        """Any method an endpoint does not have; said only to callers whose key still holds."""
        await self.confirm()
        raise errors.MethodNotAllowed(self.allowed_methods())

    get = head = post = delete = patch = put = options = refuse_method

    async def confirm(self) -> KeyView:
        """The key as it stands this moment; InvalidApiKey if it was revoked or has expired."""
        assert self.key is not None
        return await self.gateway.auth.confirm(self.key)


class GreetingHandler(BaseHandler):
    """`/`: says what this is, to anyone."""

    endpoint = "greeting"

    def get(self) -> None:
        self.finish_json({"object": "gateway", "message": "Model gateway: OpenAI-compatible API under /v1"})

    head = get


class UnknownPathHandler(BaseHandler):
    """Every path outside /v1 that does not exist."""

    def prepare(self) -> None:
        raise errors.UnknownURL()


class UnknownKeyedPathHandler(KeyedHandler):
    """Every path under /v1 that does not exist: only callers with a good key are told so."""

    async def prepared(self) -> None:
        await self.confirm()
        raise errors.UnknownURL(f"Unknown request URL: {self.request.method} {self.request.path[:200]}")


def build_application(routes: list[tuple[Any, ...]], default: type[BaseHandler], *, gateway: Gateway) -> Application:
    """A Tornado application over those routes."""
    return Application(
        [(path, handler, {"gateway": gateway}) for path, handler in routes],
        default_handler_class=default,
        default_handler_args={"gateway": gateway},
        log_function=lambda handler: None,  # the access line is ours
    )

