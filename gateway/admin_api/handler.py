"""One request of the admin API: token, access rule, query and body are checked here, for every route of the table.

`prepare` runs before the body is read, so nothing is kept of the body of a caller without access.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from functools import partial
from types import MappingProxyType
from typing import Any

import msgspec
from tornado.web import RequestHandler, stream_request_body

from gateway.accounts.accounts import OPERATION, Refused
from gateway.admin.actor import Actor
from gateway.admin_api.api import AdminApi
from gateway.admin_api.call import Call, Stopped
from gateway.admin_api.inputs import read_body, read_query
from gateway.admin_api.route import JSON, Route
from gateway.errors import (
    BadRequest,
    GatewayError,
    InternalError,
    InvalidValue,
    MethodNotAllowed,
    MissingParameter,
    NotFound,
    NotSignedIn,
    RequestTooLarge,
    TooManyRequests,
    UnknownURL,
    UnsupportedContentType,
)
from gateway.http_server.attended import CLIENT_CLOSED, AttendedWork, ClientLeft
from gateway.http_server.piecewise import PIECE_WITHIN, PieceSender
from gateway.http_server.private_answers import METHODS, body_length, set_headers
from gateway.log import AccessLine, gateway_log

SMALL_BODY = 2**20  # bytes of the body of a refused request that are read, so that the connection can be used on
KEY_HEADER = "Idempotency-Key"
HEADERS: Mapping[str, str] = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
NO_REPEAT: Mapping[str, str] = {"x-should-retry": "false"}  # a client that repeats it drops what the answer has

_EMAIL = re.compile(r"[^/]*(?:@|%40)[^/]*")

_encoder = msgspec.json.Encoder()


class PlainHandler(RequestHandler):
    """The base of the handlers: headers, request id, error body and access line."""

    SUPPORTED_METHODS = METHODS

    def initialize(self, api: AdminApi) -> None:
        self.api = api
        self.actor: Actor | None = None
        self.outcome = "ok"
        self.detail = ""

    def set_default_headers(self) -> None:
        self.request_id = set_headers(self, HEADERS)

    def compute_etag(self) -> None:
        """None: answers are not to be cached."""

    def send_document(self, document: Any, status: int = 200, media_type: str = JSON) -> None:
        """Answer with JSON; bytes are encoded already."""
        self.set_status(status)
        self.set_header("Content-Type", media_type)
        self.finish(document if isinstance(document, bytes) else _encoder.encode(document))

    def fail(self, error: Exception, done: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Answer with the error body, and beside it what was `done` before."""
        if isinstance(error, Refused):
            error = InvalidValue(str(error))
        if not isinstance(error, GatewayError):
            gateway_log.error("%s failed in the admin API", self.request_id, exc_info=error)
            error = InternalError()
        self.outcome, self.detail = error.code or "error", error.log_text()
        if isinstance(error, NotSignedIn):
            self.set_header("WWW-Authenticate", "Bearer")
        for name, value in (NO_REPEAT if done else error.headers()).items():
            self.set_header(name, value)
        self.send_document({**error.envelope(), **done}, error.status)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.fail(MethodNotAllowed(", ".join(METHODS)) if status_code == 405 else BadRequest())

    def on_finish(self) -> None:
        if self.api.services.settings.log.access:
            self.api.access_log.write(
                AccessLine(
                    request_id=self.request_id,
                    method=self.request.method or "",
                    path=logged_path(self.request.path),
                    status=self.get_status(),
                    ms=round(self.request.request_time() * 1000, 3),
                    outcome=self.outcome,
                    account=self.actor.account if self.actor else "",
                    key=self.actor.id if self.actor else "",
                    detail=self.detail,
                )
            )


class GreetingHandler(PlainHandler):
    """`/`: one line, without a token."""

    def get(self) -> None:
        self.send_document({"object": "gateway", "message": "Model gateway: admin API under /admin/v1"})

    head = get


class UnknownHandler(PlainHandler):
    """Every other path."""

    def prepare(self) -> None:
        self.fail(UnknownURL())


@stream_request_body
class AdminHandler(PlainHandler):
    """A request under `/admin/v1`."""

    route: Route
    parameters: Mapping[str, str] = MappingProxyType({})

    def initialize(self, api: AdminApi) -> None:
        super().initialize(api)
        self._sender = PieceSender(self)
        self._attended = AttendedWork()
        self._places = ExitStack()  # of a request whose body is read

    async def prepare(self) -> None:
        self._body = bytearray()
        self._refusal: Exception | None = None
        try:
            await self._admit()
        except Exception as error:
            # The handler's edge: every exception becomes an answer.
            self._refusal = await self._with_nearest(error)
        if self._refusal is not None and self._has_long_body():
            self.set_header("Connection", "close")  # the body is not read
            self.fail(self._refusal)

    async def _admit(self) -> None:
        headers = self.request.headers
        found = self.api.router.search(self.request.method or "", self.request.path.removeprefix(self.api.root_path))
        if isinstance(found, GatewayError) or not found.route.access.public:
            self.actor = await self.api.authentication.actor(headers.get("Authorization", ""), self._address())
        if isinstance(found, GatewayError):
            raise found
        self.route, self.parameters = found.route, found.parameters
        if self.actor is not None:
            await self.api.check_access(self.route, self.actor, self.parameters)
        if body_length(self.request) > self.route.max_body:
            raise RequestTooLarge()
        if self.route.body is not None and not _is_json(headers.get("Content-Type", "application/json")):
            raise UnsupportedContentType("Send the body as application/json")
        if self.route.limit is not None and self.actor is not None:
            # Before the body is read: that of a refused request takes no memory.
            self._places.enter_context(self.api.services.places.take(self.route.limit, self.actor.name))

    def _has_long_body(self) -> bool:
        return body_length(self.request) > SMALL_BODY or "Transfer-Encoding" in self.request.headers

    def data_received(self, chunk: bytes) -> None:
        """A part of the body; that of a refused request is read and dropped, so that the connection can be used on."""
        if self._finished or self._refusal is not None:
            return
        self._body += chunk
        if len(self._body) > self.route.max_body:
            self.fail(RequestTooLarge())

    async def _answer(self) -> None:
        with self._places.pop_all():
            if not self._finished:
                await self._send_answer()

    get = head = post = put = patch = delete = options = _answer

    async def _send_answer(self) -> None:
        try:
            if self._refusal is not None:
                raise self._refusal
            call = self.api.call(self.actor, operation=self._operation())
            document = await self._result(call)
            for name, value in call.headers().items():
                self.set_header(name, value)
        except ClientLeft:
            self.outcome = CLIENT_CLOSED
            self.set_status(499)
        except Exception as error:
            # The handler's edge: every exception becomes an answer.
            self.fail(await self._with_nearest(error))
        else:
            match document:
                case AsyncGenerator():
                    await self._send_pieces(document)
                case Stopped():
                    self.fail(document.error, document.done)
                case _:
                    self.send_document(document, self.route.status, self.route.media_type)

    async def _send_pieces(self, pieces: AsyncGenerator[bytes]) -> None:
        """Send a file; the end of the connection cancels it."""
        try:
            with self.api.downloads.place(self.actor.name if self.actor else ""):
                self.set_header("Content-Type", self.route.media_type)
                is_sent = await self._sender.send(pieces, within=PIECE_WITHIN)
        except TooManyRequests as error:
            await pieces.aclose()
            self.fail(error)
        except Exception as error:
            # The headers are sent: the client learns of the failure by the end of the connection.
            gateway_log.error("%s failed in the admin API", self.request_id, exc_info=error)
            self.outcome = InternalError.default_code or ""
            self._sender.cut()
        else:
            if is_sent:
                self.finish()

    def on_connection_close(self) -> None:
        """The client has left: the file or report that it waited for ends."""
        super().on_connection_close()
        self._sender.client_left()
        self._attended.client_left()
        self._places.close()  # the body does not come any more

    async def _result(self, call: Call) -> Any:
        arguments: dict[str, Any] = dict(self.parameters)
        query = read_query(self.route.query, self.request.query_arguments)
        if query is not None:
            arguments["query"] = query
        if self.route.body is not None:
            arguments["body"] = read_body(self.route.body, bytes(self._body))
        elif self._body:
            raise InvalidValue("This request has no body")
        work = partial(self.route.function, call, **arguments)
        document = await (self._attended.run(work) if self.route.ends_with_client else work())
        if self.route.writes_store:
            await call.confirm()
        return document

    def _operation(self) -> str:
        name = self.request.headers.get(KEY_HEADER, "")
        if self.route.moves_money and not name:
            raise MissingParameter(f"The header {KEY_HEADER} is required: money may move once only", param=KEY_HEADER)
        if name and not OPERATION.fullmatch(name):
            raise InvalidValue(f"{KEY_HEADER} is 1 to 128 printable ASCII characters without spaces", param=KEY_HEADER)
        return name

    async def _with_nearest(self, error: Exception) -> Exception:
        if not isinstance(error, NotFound) or self.actor is None or error is self._refusal:
            return error
        try:
            return await self.api.with_nearest(error, self.actor, self.parameters)
        except GatewayError:
            return error  # the names cannot be read now

    def _address(self) -> str:
        forwarded = self.request.headers.get("X-Forwarded-For", "")
        return self.api.client_address(self.request.remote_ip or "", forwarded)


def logged_path(path: str) -> str:
    """The path for the access log: without e-mail addresses, because the log outlives the erasure of a person."""
    return _EMAIL.sub("*", path)


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
