"""What every handler shares: the request id, the caller's key, the one error body, the access line.

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
from gateway.api.request_metadata import RequestMetadata
from gateway.errors import GatewayError
from gateway.http_server.reply import Reply
from gateway.log import AccessLine, gateway_log, redact

if TYPE_CHECKING:
    from tornado.httputil import RequestStartLine

    from gateway.accounts.authenticator import KeyView
    from gateway.http_server.exchange import Exchange
    from gateway.http_server.head import RequestHeaders
    from gateway.inference.services import Services
    from gateway.ledger.api_key import ApiKey

METHODS = {"GET": "get", "HEAD": "head", "POST": "post"}
_encoder = msgspec.json.Encoder()


def allowed_methods(handler: type[BaseHandler]) -> list[str]:
    """The methods that a handler implements, for `Allow`."""
    return [method for method, name in METHODS.items() if hasattr(handler, name)]


class BaseHandler(HTTPMessageDelegate):
    """One request and its answer."""

    endpoint_name = "other"  # in metrics
    headers: RequestHeaders
    metadata: RequestMetadata

    # As a request begins; on the class, so that making a handler sets only what differs.
    method = ""
    key: ApiKey | None = None
    outcome = "ok"
    detail = ""
    task: asyncio.Task[None] | None = None
    logged = False

    def __init__(self, services: Services, exchange: Exchange, *, path: str, argument: str = "") -> None:
        self.services = services
        self.exchange = exchange
        self.path = path
        self.argument = argument  # what the path says beyond the route, percent-decoded
        self.request_id = services.ids.request_id()
        self.reply = Reply(exchange, self.request_id, legacy_quota_code=services.settings.server.legacy_quota_code)

    # What the transport calls ----------------------------------------------------------------------------------------

    def headers_received(  # type: ignore[override]  # narrower than Tornado's: our own transport calls it
        self, start_line: RequestStartLine, headers: RequestHeaders
    ) -> Awaitable[None] | None:
        """The head is here, the body is not."""
        self.method, self.headers = start_line.method, headers
        self.exchange.set_close_callback(self.on_connection_close)
        self.exchange.refusal = self.on_transport_error
        metadata = headers.reading
        if not isinstance(metadata, RequestMetadata):
            metadata = headers.reading = RequestMetadata.of(headers, self.services.auth)
        self.metadata = metadata
        if metadata.client_request_id:
            self.reply.headers["X-Client-Request-Id"] = metadata.client_request_id
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
        if not self.reply.status:
            self.task = self.exchange.loop.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            name = METHODS.get(self.method, "")
            answer = getattr(self, name, None) if name else None
            await (answer() if answer is not None else self.on_unknown_method())
        except Exception as error:
            # The handler's edge: whatever is raised becomes an answer.
            self.send_error(error)

    def on_connection_close(self) -> None:
        """The client left before the answer was finished."""
        if not self.reply.status:
            self.reply.status, self.outcome = 499, "client_closed"
        self.log_access()

    def on_transport_error(self, error: GatewayError) -> tuple[dict[str, str], bytes]:
        """The transport refuses this request, its body most often: the answer's headers and body."""
        self.outcome, self.detail = error.code or "error", error.log_text()
        answer = self.reply.replace(error)
        self.log_access()
        return answer

    # What handlers fill in -------------------------------------------------------------------------------------------

    def on_head(self) -> Awaitable[None] | None:
        """Judge the request by its head; raise to refuse it before its body."""
        return None

    async def on_unknown_method(self) -> None:
        """Any method a handler does not have."""
        raise errors.MethodNotAllowed(", ".join(allowed_methods(type(self))))

    # Answering -------------------------------------------------------------------------------------------------------

    def send_json(self, document: Any) -> None:
        """Answer with `document` as JSON."""
        self.reply.send(_encoder.encode(document))
        self.log_access()

    def send_error(self, exception: Exception) -> None:
        """Answer with the error body; every error that ends a request before its call passes here."""
        if isinstance(exception, GatewayError):
            error = exception
        else:
            gateway_log.error("%s failed in %s", self.request_id, type(self).__name__, exc_info=exception)
            error = errors.InternalError()
        self.reply.send_error(error)
        self.outcome, self.detail = error.code or "error", error.log_text()
        self.log_access()

    def log_access(self) -> None:
        """Write the access line once, and count what no settlement has counted."""
        if self.logged:
            return
        self.logged = True
        if not self.counted():
            duration = time.monotonic() - self.reply.started
            self.services.metrics.refused(self.endpoint_name, "unknown", self.outcome, duration)
        if self.services.access_log.enabled:
            self.services.access_log.write(self.access_line())

    def counted(self) -> bool:
        """Whether this request is in the metrics already."""
        return False

    def access_line(self) -> AccessLine:
        """This request as the access log shows it."""
        metadata = self.metadata
        return AccessLine(
            request_id=self.request_id,
            method=self.method,
            path=self.path,
            status=self.reply.status,
            ms=round((time.monotonic() - self.reply.started) * 1000, 3),
            outcome=self.outcome,
            account=self.key.account if self.key else "",
            key=self.key.id if self.key else "",
            client_request_id=metadata.client_request_id,
            organization=metadata.organization,
            project=metadata.project,
            sdk=metadata.sdk,
            detail=self.detail,
        )


class KeyedHandler(BaseHandler):
    """A handler that serves only callers with a key."""

    def on_head(self) -> Awaitable[None] | None:
        """Authenticate before anything else is looked at, the body included."""
        if self.services.overload.high:
            raise errors.Overloaded()
        key = self.services.auth.cached(self.metadata.fingerprint)
        return self._known(key) if key is not None else self._authenticate()

    async def _authenticate(self) -> None:
        pending = self._known(await self.services.auth.identify(self.metadata.fingerprint))
        if pending is not None:
            await pending

    def _known(self, key: ApiKey) -> Awaitable[None] | None:
        self.key = key
        self.reply.headers["openai-organization"] = key.account
        return self.on_authenticated()

    def on_authenticated(self) -> Awaitable[None] | None:
        """The key is known; what a handler checks before the body arrives."""
        return None

    async def on_unknown_method(self) -> None:
        await self.confirm()
        await super().on_unknown_method()

    async def confirm(self) -> KeyView:
        """The key as it stands this moment; InvalidApiKey if it was revoked or has expired."""
        assert self.key is not None
        return await self.services.auth.confirm(self.key)


class GreetingHandler(BaseHandler):
    """`/`: says what this is, to anyone."""

    endpoint_name = "greeting"

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
