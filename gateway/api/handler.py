"""What every endpoint shares: the request id, the caller's key, the fixed headers, and the one error body.

A handler is a Tornado `HTTPMessageDelegate`, made per request by `gateway.api.routes`: `on_head` runs before the body
is read, then `get`, `head` or `post` in a task of its own. It is no `RequestHandler`: called in process, one took
65 µs a request and a bare delegate 17. Sharp edge: a worker remembers only whose key it is, never that it is
still good; a path that does not end in `ledger.admit` must call `confirm()`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any

import msgspec
from tornado.httputil import HTTPMessageDelegate

from gateway import errors
from gateway.accounts.authenticator import KeyView
from gateway.api.request_metadata import JSON, RequestMetadata
from gateway.errors import GatewayError
from gateway.ledger.api_key import ApiKey
from gateway.log import AccessLine, gateway_log, redact

if TYPE_CHECKING:
    from tornado.httputil import RequestStartLine

    from gateway.http_server.exchange import Exchange
    from gateway.http_server.head import RequestHeaders
    from gateway.runtime.gateway import Gateway

METHODS = {"GET": "get", "HEAD": "head", "POST": "post"}
_encoder = msgspec.json.Encoder()


def fixed_headers(request_id: str) -> dict[str, str]:
    """What every answer carries."""
    return {
        "x-request-id": request_id,
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
        "openai-version": "2020-10-01",
    }


class BaseHandler(HTTPMessageDelegate):
    """One request and its answer."""

    endpoint = "other"  # the name in metrics
    headers: RequestHeaders
    caller: RequestMetadata

    # As a request begins; on the class, so that making a handler sets only what differs.
    method = ""
    key: ApiKey | None = None
    status = 0  # of the answer, once it was sent
    outcome = "ok"
    detail = ""
    task: asyncio.Task[None] | None = None
    _access_logged = False

    def __init__(self, gateway: Gateway, exchange: Exchange, *, path: str, argument: str = "") -> None:
        self.gateway = gateway
        self.exchange = exchange
        self.path = path
        self.argument = argument  # what the path says beyond the route, percent-decoded
        self.started = time.monotonic()
        self.request_id = gateway.ids.request_id()
        self.answer_headers = fixed_headers(self.request_id)

    # What the transport calls ----------------------------------------------------------------------------------------

    def headers_received(  # type: ignore[override]  # narrower than Tornado's: our own transport calls it
        self, start_line: RequestStartLine, headers: RequestHeaders
    ) -> Awaitable[None] | None:
        """The head is here, the body is not."""
        self.method, self.headers = start_line.method, headers
        self.exchange.set_close_callback(self.on_connection_close)
        self.exchange.refusal = self.on_transport_error
        caller = headers.reading
        if not isinstance(caller, RequestMetadata):
            caller = headers.reading = RequestMetadata.of(headers, self.gateway.auth)
        self.caller = caller
        if caller.client_request_id:
            self.answer_headers["X-Client-Request-Id"] = caller.client_request_id
        try:
            pending = self.on_head()
        except Exception as error:
            # The handler's edge: whatever is raised becomes an answer.
            self.send_error(error)
            return None
        return None if pending is None else self._after_head(pending)

    async def _after_head(self, pending: Awaitable[None]) -> None:
        try:
            await pending
        except Exception as error:
            # The handler's edge, once more, for what took time.
            self.send_error(error)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Bodies are of no interest unless a handler says so; the transport bounds them."""
        return None

    def finish(self) -> None:
        """The whole request is here: answer it."""
        if not self.status:
            self.task = self.exchange.loop.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            answer = getattr(self, METHODS.get(self.method, ""), self.refuse_method)
            await answer()
        except Exception as error:
            # The handler's edge: whatever is raised becomes an answer.
            self.send_error(error)

    def on_connection_close(self) -> None:
        """The client left before the answer was finished."""
        if not self.status:
            self.status, self.outcome = 499, "client_closed"
        self.log_access()

    def on_transport_error(self, error: GatewayError) -> tuple[dict[str, str], bytes]:
        """The transport refuses this request, its body most often: the answer's headers and body."""
        self.status, self.outcome, self.detail = error.status, error.code or "error", error.detail or ""
        self.answer_headers |= {"Content-Type": JSON, **error.headers()}
        self.log_access()
        return self.answer_headers, error.body()

    # What endpoints fill in ------------------------------------------------------------------------------------------

    def on_head(self) -> Awaitable[None] | None:
        """Judge the request by its head; raise to refuse it before its body."""
        return None

    @classmethod
    def allowed_methods(cls) -> list[str]:
        """The methods this handler implements, for `Allow`."""
        return [method for method, name in METHODS.items() if hasattr(cls, name)]

    async def refuse_method(self) -> None:
        """Any method an endpoint does not have."""
        raise errors.MethodNotAllowed(", ".join(self.allowed_methods()))

    # Answering -------------------------------------------------------------------------------------------------------

    def set_header(self, name: str, value: str) -> None:
        """A header of the answer; names are written as they stand here."""
        self.answer_headers[name] = value

    def send_json(self, document: Any) -> None:
        """Answer with `document` as JSON."""
        self.send_bytes(_encoder.encode(document))

    def send_bytes(self, body: bytes, *, status: int = 200, media_type: str = JSON) -> None:
        """Answer with a whole body, an encoded JSON document unless it says otherwise."""
        self.answer_headers["Content-Type"] = media_type
        self.tell_time()
        self.status = status
        self.exchange.answer(status, self.answer_headers, body)
        self.log_access()

    def tell_time(self) -> None:
        """Say how long it took up to now, in milliseconds."""
        self.answer_headers["openai-processing-ms"] = str(round((time.monotonic() - self.started) * 1000))

    def send_error(self, exception: Exception) -> None:
        """Answer with the error body; every error of this server passes here."""
        if isinstance(exception, GatewayError):
            error = exception
        else:
            gateway_log.error("%s failed in %s", self.request_id, type(self).__name__, exc_info=exception)
            error = errors.InternalError()
        if self.gateway.settings.server.legacy_quota_code and isinstance(error, errors.QuotaExhausted):
            error.code = "insufficient_quota"  # what clients written before the finer codes test for
        self.outcome, self.detail = error.code or "error", error.detail or ""
        if self.status:
            self.exchange.abort()  # the answer had begun, and must not look whole
            self.log_access()
            return
        self.answer_headers.update(error.headers())
        self.send_bytes(error.body(), status=error.status)

    def log_access(self) -> None:
        """Write the access line, and count what no settlement has counted."""
        if self._access_logged:
            return
        self._access_logged = True
        if not self.counted():
            self.gateway.metrics.refused(self.endpoint, "unknown", self.outcome, time.monotonic() - self.started)
        if self.gateway.access_log.enabled:
            self.gateway.access_log.write(self.access_line())

    def counted(self) -> bool:
        """Whether this request is in the metrics already."""
        return False

    def access_line(self) -> AccessLine:
        """This request as the access log shows it."""
        return AccessLine(
            request_id=self.request_id,
            method=self.method,
            path=self.path,
            status=self.status,
            ms=round((time.monotonic() - self.started) * 1000, 3),
            outcome=self.outcome,
            account=self.key.account if self.key else "",
            key=self.key.id if self.key else "",
            client_request_id=self.caller.client_request_id,
            organization=self.caller.organization,
            project=self.caller.project,
            sdk=self.caller.sdk,
            detail=self.detail,
        )


class KeyedHandler(BaseHandler):
    """A handler that serves only callers with a key."""

    def on_head(self) -> Awaitable[None] | None:
        """Authenticate before anything else is looked at, the body included."""
        if self.gateway.overload.high:
            raise errors.Overloaded()
        key = self.gateway.auth.cached(self.caller.fingerprint)
        return self._known(key) if key is not None else self._authenticate()

    async def _authenticate(self) -> None:
        pending = self._known(await self.gateway.auth.identify(self.caller.fingerprint))
        if pending is not None:
            await pending

    def _known(self, key: ApiKey) -> Awaitable[None] | None:
        self.key = key
        self.answer_headers["openai-organization"] = key.account
        return self.on_authenticated()

    def on_authenticated(self) -> Awaitable[None] | None:
        """The key is known; what an endpoint checks before the body arrives."""
        return None

    async def refuse_method(self) -> None:
        await self.confirm()
        await super().refuse_method()

    async def confirm(self) -> KeyView:
        """The key as it stands this moment; InvalidApiKey if it was revoked or has expired."""
        assert self.key is not None
        return await self.gateway.auth.confirm(self.key)


class GreetingHandler(BaseHandler):
    """`/`: says what this is, to anyone."""

    endpoint = "greeting"

    async def get(self) -> None:
        self.send_json({"object": "gateway", "message": "Model gateway: OpenAI-compatible API under /v1"})

    head = get


class UnknownPathHandler(BaseHandler):
    """Every path outside /v1 that does not exist."""

    def on_head(self) -> None:
        raise errors.UnknownURL()


class UnknownKeyedPathHandler(KeyedHandler):
    """Every path under /v1 that does not exist: only callers with a good key are told so."""

    async def on_authenticated(self) -> None:
        await self.confirm()
        raise errors.UnknownURL(redact(f"Unknown request URL: {self.method} {self.path[:200]}"))
