"""The base of the handlers of the console process, pages and admin API alike.

It has the request id, the headers of private answers, the bound of the body, work that ends with its client, answers in
pieces, and the access line. A subclass answers errors in its own form.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from types import MappingProxyType

from msgspec import Struct
from tornado.httputil import HTTPServerRequest
from tornado.web import RequestHandler

from gateway.config.settings import Settings
from gateway.errors import Forbidden, GatewayError, InternalError, NotSignedIn, RequestTooLarge, TooManyRequests
from gateway.http_server.client_address import client_address, networks
from gateway.ids import request_id
from gateway.log import AccessLine, AccessLog, gateway_log
from gateway.web.attended import CLIENT_CLOSED, AttendedWork
from gateway.web.piecewise import Check, PieceSender, RunningDownloads
from gateway.web.request_body import RequestBody

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
#: Nothing is cached, shown in a frame of another site, or interpreted as another type.
PRIVATE: Mapping[str, str] = {
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

#: For 30 days browsers do not use plain HTTP for the host. They ignore it where the certificate is not trusted.
HTTPS_ONLY = "max-age=2592000"


class LoggedRequest(Struct, frozen=True, kw_only=True):
    """What the access line says of a request: its path without what the log must not keep, and who asked."""

    path: str
    account: str
    key: str  # id of the token or user


class WebHandler(RequestHandler):
    """One request. `initialize` of a subclass calls `use`; `refuse` and `logged` are the subclass's.

    A subclass that reads bodies has Tornado's `stream_request_body`. It calls `body.admit` in `prepare`, when the head
    has passed its checks.
    """

    SUPPORTED_METHODS = METHODS
    own_headers: Mapping[str, str] = MappingProxyType({})  # beside those of PRIVATE

    def use(self, surface: Surface) -> None:
        """Begin the request."""
        self.surface = surface
        self.outcome, self.detail = "ok", ""
        self.body = RequestBody(self.request)
        self.attended = AttendedWork()
        self._sender = PieceSender(self)

    def set_default_headers(self) -> None:
        self.request_id = request_id()
        self.set_header("x-request-id", self.request_id)
        for name, value in (*PRIVATE.items(), *self.own_headers.items()):
            self.set_header(name, value)
        if self.request.protocol == "https":
            self.set_header("Strict-Transport-Security", HTTPS_ONLY)

    def compute_etag(self) -> None:
        """None: answers are not to be cached."""

    def refuse(self, error: Exception) -> None:
        """Answer with the error."""
        raise NotImplementedError

    def logged(self) -> LoggedRequest | None:
        """What the access line says; None for no line."""
        raise NotImplementedError

    def note_error(self, error: Exception) -> GatewayError:
        """Keep for the access line why the request failed; an exception of no type of ours becomes InternalError."""
        if not isinstance(error, GatewayError):
            gateway_log.error("%s failed in %s", self.request_id, self.surface.name, exc_info=error)
            error = InternalError()
        self.outcome, self.detail = error.code or "error", error.log_text()
        return error

    def note_client_left(self) -> None:
        """Nobody waits for the answer any more."""
        self.outcome = CLIENT_CLOSED
        self.set_status(499)

    def data_received(self, chunk: bytes) -> None:
        """A part of the body; one of unknown length may turn out to be too long."""
        if self._finished:
            return
        try:
            self.body.add(chunk)
        except RequestTooLarge as error:
            self.refuse(error)
            super().on_connection_close()  # the rest is not waited for

    async def send_pieces(
        self,
        pieces: AsyncGenerator[bytes],
        place: AbstractContextManager[None],
        headers: Mapping[str, str],
        *,
        within: float | None = None,
        check: Check | None = None,
    ) -> bool:
        """Send a body while it is made; the end of the connection cancels it. False if the client has left.

        `place` is taken while the body is sent. If it is refused with TooManyRequests, this is the answer. The
        connection is cut when `check` raises.
        """
        with ExitStack() as taken:
            try:
                taken.enter_context(place)
            except TooManyRequests as error:
                await pieces.aclose()
                self.refuse(error)
                return True
            for name, value in headers.items():
                self.set_header(name, value)
            try:
                is_sent = await self._sender.send(pieces, within=within, check=check)
            except (Forbidden, NotSignedIn) as error:
                self.note_error(error)  # the rights of the reader have ended
            except Exception as error:
                # The handler's edge: every exception ends the answer.
                gateway_log.error("%s failed in %s", self.request_id, self.surface.name, exc_info=error)
                self.note_error(InternalError())
            else:
                if is_sent:
                    self.finish()
                return is_sent
            self._sender.cut()  # the headers are sent: an incomplete answer tells the client of the error
            return True

    def on_connection_close(self) -> None:
        """The client has left: what it waited for ends."""
        super().on_connection_close()
        self._sender.client_left()
        self.attended.client_left()

    def on_finish(self) -> None:
        """Write the access line."""
        logged = self.logged()
        if logged is None or not self.surface.logs_access:
            return
        self.surface.access_log.write(
            AccessLine(
                request_id=self.request_id,
                method=self.request.method or "",
                path=logged.path,
                status=self.get_status(),
                ms=round(self.request.request_time() * 1000, 3),
                outcome=self.outcome,
                account=logged.account,
                key=logged.key,
                detail=self.detail,
            )
        )


class Surface:
    """`name` stands in the log: "the console" or "the admin API". `settings` returns those in use."""

    def __init__(self, name: str, settings: Callable[[], Settings]) -> None:
        self.name = name
        self.access_log = AccessLog()
        self.downloads = RunningDownloads()
        self._settings = settings

    @property
    def logs_access(self) -> bool:
        """Whether requests get an access line."""
        return self._settings().log.access

    def client_address(self, request: HTTPServerRequest) -> str:
        """The address of the client, behind the proxies that the operator trusts."""
        forwarded = request.headers.get("X-Forwarded-For", "")
        return client_address(request.remote_ip or "", forwarded, networks(self._settings().server.trusted_proxies))
