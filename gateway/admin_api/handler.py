"""One request of the admin API: token, access rule, query and body are checked here, for every route of the table.

`prepare` runs before the body is read, so nothing is kept of the body of a caller without access.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import ExitStack
from functools import partial
from time import monotonic
from types import MappingProxyType
from typing import Any

import msgspec
from tornado.httputil import HTTPServerRequest
from tornado.web import stream_request_body

from gateway.accounts.accounts import OPERATION
from gateway.admin.actor import Actor
from gateway.admin_api.api import AdminApi
from gateway.admin_api.call import Stopped
from gateway.admin_api.inputs import read_body, read_query
from gateway.admin_api.route import JSON, AdminRoute
from gateway.errors import (
    BadRequest,
    GatewayError,
    InvalidValue,
    MethodNotAllowed,
    MissingParameter,
    NotSignedIn,
    UnknownURL,
    UnsupportedContentType,
)
from gateway.web.attended import ClientLeft
from gateway.web.handler import METHODS, LoggedRequest, WebHandler
from gateway.web.late_answers import LATE, require_same
from gateway.web.piecewise import PIECE_WITHIN
from gateway.web.request_body import has_body

KEY_HEADER = "Idempotency-Key"
HEADERS: Mapping[str, str] = {"Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'"}
NO_REPEAT: Mapping[str, str] = {"x-should-retry": "false"}  # a client that repeats it drops what the answer has

_EMAIL = re.compile(r"[^/]*(?:@|%40)[^/]*")

_encoder = msgspec.json.Encoder()


class PlainHandler(WebHandler):
    """The base of the handlers: answers and errors are JSON."""

    own_headers = HEADERS

    def initialize(self, api: AdminApi) -> None:
        self.use(api.surface)
        self.api = api
        self.actor: Actor | None = None

    def send_document(self, document: Any, status: int = 200, media_type: str = JSON) -> None:
        """Answer with JSON; bytes are encoded already."""
        self.set_status(status)
        self.set_header("Content-Type", media_type)
        self.finish(document if isinstance(document, bytes) else _encoder.encode(document))

    def refuse(self, error: Exception, done: Mapping[str, Any] = MappingProxyType({})) -> None:
        """Answer with the error body, and beside it what was `done` before."""
        error = self.note_error(error)
        if isinstance(error, NotSignedIn):
            self.set_header("WWW-Authenticate", "Bearer")
        for name, value in (NO_REPEAT if done else error.headers()).items():
            self.set_header(name, value)
        self.send_document({**error.envelope(), **done}, error.status)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        self.refuse(MethodNotAllowed(", ".join(METHODS)) if status_code == 405 else BadRequest())

    def logged(self) -> LoggedRequest:
        account, key = (self.actor.account, self.actor.id) if self.actor else ("", "")
        return LoggedRequest(path=logged_path(self.request.path), account=account, key=key)


class GreetingHandler(PlainHandler):
    """`/`: one line, without a token."""

    def get(self) -> None:
        self.send_document({"object": "gateway", "message": "Model gateway: admin API under /admin/v1"})

    head = get


class UnknownHandler(PlainHandler):
    """Every other path."""

    def prepare(self) -> None:
        self.refuse(UnknownURL())


@stream_request_body
class AdminHandler(PlainHandler):
    """A request under `/admin/v1`."""

    route: AdminRoute
    parameters: Mapping[str, str] = MappingProxyType({})
    account = ""  # that the route is about

    def initialize(self, api: AdminApi) -> None:
        super().initialize(api)
        self._places = ExitStack()  # of a request whose body is read

    async def prepare(self) -> None:
        try:
            await self._admit()
        except Exception as error:
            # The handler's edge: every exception becomes an answer.
            self.refuse(await self.api.with_nearest(error, self.actor, self.parameters))

    async def _admit(self) -> None:
        headers = self.request.headers
        found = self.api.router.search(self.request.method or "", self.request.path.removeprefix(self.api.root_path))
        if isinstance(found, GatewayError) or not found.route.access.public:
            await self._authenticate()
        if isinstance(found, GatewayError):
            raise found
        self.route, self.parameters = found.route, found.parameters
        if self.actor is not None:
            self.account = await self.api.check_access(self.route, self.actor, self.parameters)
        self.body.admit(self.route.max_body)
        if self.actor is not None:
            self.api.changes.count(self.actor, self.route)
        if self.route.body is not None and not _is_json(headers.get("Content-Type", "application/json")):
            raise UnsupportedContentType("Send the body as application/json")
        # Before the body is read: that of a refused request takes no memory.
        who = self.actor.name if self.actor is not None else ""
        self._places.enter_context(self.api.services.places.take(self.route.limit, who))

    async def _authenticate(self) -> None:
        """Find out who asks; NotSignedIn."""
        authorization = self.request.headers.get("Authorization", "")
        self.actor = await self.api.authentication.actor(authorization, self.surface.client_address(self.request))

    async def _answer(self) -> None:
        with self._places.pop_all():
            try:
                document = await self._document()
            except ClientLeft:
                self.note_client_left()
            except Exception as error:
                # The handler's edge: every exception becomes an answer.
                self.refuse(await self.api.with_nearest(error, self.actor, self.parameters))
            else:
                match document:
                    case AsyncGenerator():
                        place = self.surface.downloads.place(self.actor.name if self.actor else "")
                        headers = {"Content-Type": self.route.media_type}
                        check = None if self.actor is None else partial(self._require_same, self.actor)
                        await self.send_pieces(document, place, headers, within=PIECE_WITHIN, check=check)
                    case Stopped():
                        self.refuse(document.error, document.done)
                    case _:
                        self.send_document(document, self.route.status, self.route.media_type)

    get = head = post = put = patch = delete = options = _answer

    async def _document(self) -> Any:
        """What the route's function returns."""
        if self.actor is not None and has_body(self.request):  # again: it may take long, and tokens end meanwhile
            await self._authenticate()
        call = self.api.call(self.actor, account=self.account, operation=_operation(self.route, self.request))
        arguments = _arguments(self.route, self.request, self.body.content)
        work = partial(self.route.function, call, **self.parameters, **arguments)
        began, before = monotonic(), self.actor
        if self.route.ends_with_client:
            document = await self.attended.run(work)
        else:
            async with self.api.turn(self.route, before):
                document = await work()
        if self.route.writes_store:
            await call.confirm()
        if before is not None and not self.route.ends_token and monotonic() - began >= LATE:
            await self._require_same(before)
        for name, value in call.headers().items():
            self.set_header(name, value)
        return document

    async def _require_same(self, before: Actor) -> None:
        """NotSignedIn, Forbidden for a token that has ended, or has other rights than `before`."""
        await self._authenticate()
        require_same(before, self.actor)

    def on_connection_close(self) -> None:
        super().on_connection_close()
        self._places.close()  # the body does not come any more

    def on_finish(self) -> None:
        super().on_finish()
        self._places.close()  # the request was refused while its body arrived


def _arguments(route: AdminRoute, request: HTTPServerRequest, body: bytes) -> dict[str, Any]:
    """The query and the body, as the function of the route takes them; GatewayError."""
    arguments: dict[str, Any] = {}
    query = read_query(route.query, request.query_arguments)
    if query is not None:
        arguments["query"] = query
    if route.body is not None:
        arguments["body"] = read_body(route.body, body)
    elif body:
        raise InvalidValue("This request has no body")
    return arguments


def _operation(route: AdminRoute, request: HTTPServerRequest) -> str:
    name = request.headers.get(KEY_HEADER, "")
    if route.moves_money and not name:
        raise MissingParameter(f"The header {KEY_HEADER} is required: money may move once only", param=KEY_HEADER)
    if name and not OPERATION.fullmatch(name):
        raise InvalidValue(f"{KEY_HEADER} is 1 to 128 printable ASCII characters without spaces", param=KEY_HEADER)
    return name


def logged_path(path: str) -> str:
    """The path for the access log: without e-mail addresses, because the log outlives the erasure of a person."""
    return _EMAIL.sub("*", path)


def _is_json(content_type: str) -> bool:
    return content_type.partition(";")[0].strip().lower() == "application/json"
