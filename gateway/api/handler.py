"""The base of every handler: request id, the caller's key, error body, access line.

A handler is a Tornado `HTTPMessageDelegate`, made per request by `gateway.api.routes`: `on_head` runs before the body
is read, then `get` or `post` in its own task; `get` also answers HEAD. It is not a `RequestHandler`: called in process,
one took 65 µs a request and a bare delegate 17. Sharp edge: a worker caches the account of a key, but not whether the
key is valid. A handler that does not call `ledger.admit` must call `confirm()`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

import msgspec
from tornado.httputil import HTTPMessageDelegate, RequestStartLine

from gateway import errors
from gateway.accounts.authenticator import KeyView
from gateway.accounts.key_scopes import check_scopes
from gateway.api.cors import cors_headers, preflight_headers
from gateway.api.request_log import address_of, log_request
from gateway.api.request_metadata import RequestMetadata
from gateway.errors import GatewayError
from gateway.errors.facts import NO_FACTS, RefusalFacts
from gateway.http_server.exchange import Exchange
from gateway.http_server.head import RequestHeaders
from gateway.http_server.reply import ResponseWriter
from gateway.inference.call_stages import CallRequest
from gateway.inference.services import Services
from gateway.ledger.api_key import ApiKey
from gateway.log import gateway_log, redact

METHODS = {"GET": "get", "HEAD": "get", "POST": "post", "DELETE": "delete"}
_encoder = msgspec.json.Encoder()


def allowed_methods(handler: type[BaseHandler]) -> list[str]:
    """The methods that a handler implements, for `Allow`."""
    return [method for method, name in METHODS.items() if hasattr(handler, name)]


class BaseHandler(HTTPMessageDelegate):
    """One request and its answer."""

    endpoint_name = "other"  # in metrics
    headers: RequestHeaders
    metadata: RequestMetadata

    # Defaults on the class, so that the constructor sets only what differs.
    method = ""
    key: ApiKey | None = None
    asked: CallRequest | None = None
    outcome = "ok"
    detail = ""
    facts: RefusalFacts = NO_FACTS  # of the error that refused the request
    task: asyncio.Task[None] | None = None
    logged = False
    client_gone = False

    def __init__(self, services: Services, exchange: Exchange, *, path: str, argument: str = "") -> None:
        self.services = services
        self.exchange = exchange
        self.path = path
        self.argument = argument  # the rest of the path after the route, percent-decoded
        self.request_id = services.ids.request_id()
        self.reply = ResponseWriter(
            exchange, self.request_id, legacy_quota_code=services.settings.server.limits.legacy_quota_code
        )

    # Called by the transport -----------------------------------------------------------------------------------------

    def headers_received(  # type: ignore[override]  # narrower than Tornado's: our own transport calls it
        self, start_line: RequestStartLine, headers: RequestHeaders
    ) -> Awaitable[None] | None:
        """The head was read; the body was not."""
        self.method, self.headers = start_line.method, headers
        self.exchange.set_close_callback(self.on_connection_close)
        self.exchange.refusal = self.on_transport_error
        metadata = headers.application_data
        if not isinstance(metadata, RequestMetadata):
            metadata = headers.application_data = RequestMetadata.of(headers, self.services.auth, start_line.path)
        self.metadata = metadata
        if metadata.client_request_id:
            self.reply.headers["X-Client-Request-Id"] = metadata.client_request_id
        origins = self.services.settings.server.cors_origins
        if origins and _answered_preflight(self, origins):
            return None
        try:
            pending = self.on_head()
        except Exception as error:
            # The handler's edge: every exception becomes an answer.
            self.send_error(error)
            return None
        return None if pending is None else self._after_head(pending)

    async def _after_head(self, pending: Awaitable[None]) -> None:
        try:
            await pending
        except Exception as error:
            # The handler's edge for the asynchronous part: every exception becomes an answer.
            self.send_error(error)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Ignore the body; handlers that need it override this. The transport limits its size."""
        return None

    def finish(self) -> None:
        """The whole request was read: answer it."""
        if not self.reply.status:
            self.task = self.exchange.loop.create_task(self._answer())

    async def _answer(self) -> None:
        try:
            name = METHODS.get(self.method, "")
            answer = getattr(self, name, None) if name else None
            await (answer() if answer is not None else self.on_unknown_method())
        except Exception as error:
            # The handler's edge: every exception becomes an answer.
            self.send_error(error)

    def on_connection_close(self) -> None:
        """The client disconnected before the answer was finished."""
        if not self.reply.status:
            self.reply.status, self.outcome = 499, "client_closed"
        self.log_access()

    def on_transport_error(self, error: GatewayError) -> tuple[dict[str, str], bytes]:
        """The transport refuses this request, usually its body; returns the headers and the body of the answer."""
        _note(self, error)
        answer = self.reply.replace(error)
        self.log_access()
        return answer

    # Overridden by handlers ------------------------------------------------------------------------------------------

    def on_head(self) -> Awaitable[None] | None:
        """Check the head; raise an error to refuse the request before its body is read."""
        return None

    async def on_unknown_method(self) -> None:
        """Refuse a method that the handler does not implement."""
        raise errors.MethodNotAllowed(", ".join(allowed_methods(type(self))))

    # Answering -------------------------------------------------------------------------------------------------------

    def send_json(self, document: Any) -> None:
        """Answer with `document` as JSON."""
        self.reply.send(_encoder.encode(document))
        self.log_access()

    def send_error(self, exception: Exception) -> None:
        """Answer with the error body; used for every error that ends a request before its call."""
        if isinstance(exception, GatewayError):
            error = exception
        else:
            gateway_log.error("%s failed in %s", self.request_id, type(self).__name__, exc_info=exception)
            error = errors.InternalError()
        self.reply.send_error(error)
        _note(self, error)
        self.log_access()

    def log_access(self) -> None:
        """Write the access line once, and count a request that no settlement counted."""
        if not self.logged:
            self.logged = True
            log_request(self)

    def client_address(self) -> str:
        """The address of the client, behind the proxies that the operator trusts."""
        return address_of(self)


def _note(handler: BaseHandler, error: GatewayError) -> None:
    """Keep what the access line and the metrics tell about the error."""
    handler.outcome, handler.detail, handler.facts = error.code or "error", error.log_text(), RefusalFacts.of(error)


def _answered_preflight(handler: BaseHandler, origins: Sequence[str]) -> bool:
    """Set the headers for pages of other origins; whether the request was a preflight, which is now answered."""
    reply, headers = handler.reply, handler.headers
    reply.headers |= cors_headers(headers, origins)
    further = preflight_headers(handler.method, headers, reply.headers)
    if further is None:
        return False
    reply.headers |= further
    reply.send(b"", status=204)
    handler.log_access()
    return True


class KeyedHandler(BaseHandler):
    """A handler that requires an API key."""

    def on_head(self) -> Awaitable[None] | None:
        """Authenticate before anything else is checked."""
        overload = self.services.overload
        if overload.asleep:
            overload.wake()
        if overload.high:
            raise errors.Overloaded()
        key = self.services.auth.cached(self.metadata.fingerprint)
        return self._known(key) if key is not None else self._authenticate()

    async def _authenticate(self) -> None:
        if self.metadata.key_has_space:
            raise errors.InvalidApiKey(errors.InvalidApiKey.HAS_SPACE)
        hooks = self.services.settings.server.authenticate
        if hooks and self.metadata.fingerprint is None:
            key = await self.services.foreign_keys.identify(hooks, self.headers, self.path, self.client_address)
        else:
            key = await self.services.auth.identify(self.metadata.fingerprint)
        pending = self._known(key)
        if pending is not None:
            await pending

    def _known(self, key: ApiKey) -> Awaitable[None] | None:
        self.key = key
        self.reply.headers["openai-organization"] = key.account
        return self.on_authenticated()

    def on_authenticated(self) -> Awaitable[None] | None:
        """The account of the key is known; override to check more before the body arrives."""
        return None

    async def on_unknown_method(self) -> None:
        await self.confirm()
        await super().on_unknown_method()

    async def confirm(self, models: Iterable[str] = ()) -> KeyView:
        """The current state of the key, from the store, and its permissions for `models`.

        InvalidApiKey if it was revoked or has expired, KeyRestricted if it may not be used from the client's address.
        """
        assert self.key is not None
        view = await self.services.auth.confirm(self.key, models)
        if view.scopes:
            check_scopes(view.scopes, self.client_address())
        return view


class GreetingHandler(BaseHandler):
    """`/`: a greeting, without a key."""

    endpoint_name = "greeting"

    async def get(self) -> None:
        self.send_json({"object": "gateway", "message": "Model gateway: OpenAI-compatible API under /v1"})


class UnknownPathHandler(BaseHandler):
    """Unknown paths outside /v1."""

    def on_head(self) -> None:
        path = redact(self.path[:200])
        raise errors.UnknownURL(f"Unknown request URL: {self.method} {path}. The base URL of this API ends in /v1.")


class UnknownKeyedPathHandler(KeyedHandler):
    """Unknown paths under /v1: 404 with a valid key, 401 without one."""

    async def on_authenticated(self) -> None:
        await self.confirm()
        doubled = " The base URL has /v1 twice." if self.path.startswith("/v1/v1/") else ""
        raise errors.UnknownURL(redact(f"Unknown request URL: {self.method} {self.path[:200]}.") + doubled)
