"""One request of a page: session, audience, XSRF token and form are checked here, for every route of the table."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qs

from tornado.web import RequestHandler, stream_request_body

from gateway.accounts.accounts import Refused
from gateway.console import cookies as names
from gateway.console.audience import check_audience
from gateway.console.cookies import Cookies
from gateway.console.paths import path_with
from gateway.console.playground_runs import MOST_OF_USER
from gateway.console.replies import Document, Download, Redirect, Reply, Stream, View
from gateway.console.route import Function, Route
from gateway.console.site import Site
from gateway.console.static_files import StaticHandler
from gateway.console.visit import Asked, Visit
from gateway.console.xsrf import FIELD, HEADER, is_right
from gateway.errors import (
    Forbidden,
    GatewayError,
    InternalError,
    InvalidValue,
    MethodNotAllowed,
    NotFound,
    NotSignedIn,
    RequestTooLarge,
    SignInRefused,
    TooManyRequests,
    UnknownURL,
    UnsupportedContentType,
)
from gateway.http_server.attended import CLIENT_CLOSED, AttendedWork, ClientLeft
from gateway.http_server.piecewise import PIECE_WITHIN, PieceSender
from gateway.http_server.places import Limit
from gateway.http_server.private_answers import METHODS, body_length, set_headers
from gateway.http_server.zero_character import refuse_zero
from gateway.log import AccessLine, gateway_log

MOST_WAITS = MOST_OF_USER  # of one person at one route that waits for others
TOO_MANY_WAITS = "You have opened this too many times at once; wait for one of them"
MAX_BODY = 2**18  # bytes
MAX_FIELDS = 2000
MAX_QUERY = 100  # parameters
FORM = "application/x-www-form-urlencoded"
SIGN_IN = "/sign-in"
#: Statuses of input that a person can correct: its form is shown again. A form whose own object is not found is not.
CORRECTABLE = frozenset({400, 401, 404, 409, 429})
#: Of lines that are sent one by one: a proxy must not collect them.
LINES: Mapping[str, str] = {"Content-Type": "application/x-ndjson", "X-Accel-Buffering": "no"}
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@stream_request_body
class PageHandler(RequestHandler):
    """A request for a page."""

    SUPPORTED_METHODS = METHODS

    def initialize(self, site: Site) -> None:
        self.site = site
        self.outcome, self.detail = "ok", ""
        self._body = bytearray()
        self._sender = PieceSender(self)
        self._attended = AttendedWork()

    def set_default_headers(self) -> None:
        self.request_id = set_headers(self, HEADERS)

    def compute_etag(self) -> None:
        """None: pages are not to be cached."""

    def prepare(self) -> None:
        headers = self.request.headers
        text = headers.get("X-Forwarded-Proto", "")
        is_secure = self.site.is_secure(self.request.remote_ip or "", text)
        self.jar = Cookies(lambda name: self.get_cookie(name), secure=is_secure)
        asked = Asked(
            method=self.request.method or "",
            path=self.site.own_path(self.request.path),
            host=self.request.host_name,
            query=_read_query(self.request.query),
            address=self.site.client_address(self.request.remote_ip or "", headers.get("X-Forwarded-For", "")),
            user_agent=headers.get("User-Agent", ""),
            is_secure=is_secure,
        )
        self.visit = Visit(
            self.site.services,
            asked,
            self.jar,
            home_of_site=self.site.first_page_of_site,
            imports=self.site.imports,
        )
        if body_length(self.request) > MAX_BODY:
            self.set_header("Connection", "close")  # the body is not read
            self._send(self._error_page(RequestTooLarge()))

    def data_received(self, chunk: bytes) -> None:
        """A part of the body; one of unknown length may turn out to be too long."""
        if len(self._body) <= MAX_BODY:
            self._body += chunk

    async def _answer(self) -> None:
        if self._finished:
            return
        try:
            reply = await self._reply()
        except ClientLeft:
            self._note_client_left()
            return
        except Exception as error:
            # The handler's edge: every exception becomes a page.
            reply = self._error_page(error)
        match reply:
            case Stream(lines):  # of a call in the playground
                await self._send_in_pieces(lines, self.site.playground.place(self.visit.actor.id), LINES)
            case Download(name, content_type, pieces):
                headers = {"Content-Type": content_type, "Content-Disposition": f'attachment; filename="{name}"'}
                place = self.site.downloads.place(self.visit.actor.name)
                await self._send_in_pieces(pieces, place, headers, within=PIECE_WITHIN)
            case _:
                self._send(reply)

    get = head = post = put = patch = delete = options = _answer

    async def _reply(self) -> Reply:
        visit = self.visit
        await visit.identify()
        route, parameters = self.site.router.search(visit.asked.method, visit.asked.path)
        refuse_zero(visit.asked.query)
        try:
            await self._admit(route, parameters)
        except NotSignedIn:
            return self._to_sign_in(route)
        if not route.writes:
            return await self._read(route, parameters)
        visit.form = self._read_form()
        refuse_zero(visit.form)
        if not is_right(visit.anchor, visit.raw(FIELD) or self.request.headers.get(HEADER, "")):
            return await self._refuse_form(route, parameters)
        return await self._write(route, parameters)

    async def _admit(self, route: Route, parameters: Mapping[str, str]) -> None:
        visit, account = self.visit, parameters.get("account", "")
        actor = visit.actor if visit.is_signed_in else None
        check_audience(route.audience, actor, account, writes=route.writes)
        if route.is_open is not None and not route.is_open(visit):
            raise NotSignedIn if actor is None else NotFound("There is no such page")
        if not account or actor is None:
            return
        if account not in actor.memberships:
            await (await visit.people()).directory.require(account)  # an operator may type any name
        visit.account = account
        if account in actor.memberships and visit.cookies.get(names.ACCOUNT) != account:
            visit.cookies.set(names.ACCOUNT, account, max_age=names.SESSION_AGE)

    async def _read(self, route: Route, parameters: Mapping[str, str]) -> Reply:
        """Reads take turns. Those that wait for others do not, and writes neither: these wait for hashes and mail."""
        if route.waits:
            return await self._wait(route, parameters)
        async with self.site.turns:
            result: Reply = await route.function(self.visit, **parameters)
        return result

    async def _wait(self, route: Route, parameters: Mapping[str, str]) -> Reply:
        """A person has few waits at a time, and none for an answer that nobody reads; ClientLeft."""
        work = partial(route.function, self.visit, **parameters)
        with self._place(route.limit or Limit(name=route.path, most=MOST_WAITS, refusal=TOO_MANY_WAITS)):
            result: Reply = await (work() if route.completes else self._attended.run(work))
        return result

    def _place(self, limit: Limit | None) -> AbstractContextManager[None]:
        """Count what the person has under way; TooManyRequests."""
        if limit is None or self.visit.user is None:
            return nullcontext()
        return self.site.waits.take(limit, self.visit.actor.name)

    async def _refuse_form(self, route: Route, parameters: Mapping[str, str]) -> Reply:
        """A form without the right token changes nothing.

        A form for people who are not signed in is shown again with the right one: another tab has signed in or out.
        """
        is_foreign = self.request.headers.get("Sec-Fetch-Site") == "cross-site"  # it gets no cookies
        if route.audience != "public" or route.form is None or is_foreign:
            raise Forbidden("This form is too old, or it is not from this site. Go back, reload the page, try again")
        return await self._again(
            route.form, parameters, Forbidden("This form was too old, or another tab signed in or out. Send it again")
        )

    async def _again(self, form: Function, parameters: Mapping[str, str], refusal: GatewayError) -> Reply:
        """The form once more, with what was typed and why it was refused."""
        self.visit.error = refusal
        self._note_outcome(refusal)
        self.set_status(refusal.status)
        reply: Reply = await form(self.visit, **parameters)
        return reply

    async def _write(self, route: Route, parameters: Mapping[str, str]) -> Reply:
        visit = self.visit
        try:
            self.site.changes.count(visit, route)
            with self._place(route.limit):
                result: Reply = await route.function(visit, **parameters)
        except (GatewayError, Refused) as error:
            refusal = InvalidValue(str(error)) if isinstance(error, Refused) else error
            if route.form is None or refusal.status not in CORRECTABLE:
                raise refusal from None
            return await self._again(route.form, parameters, refusal)
        if visit.is_signed_in:
            for doubt in await visit.store.doubts():
                gateway_log.warning("a change in the console was made, but %s", doubt)
                visit.note(f"The change was made, but {doubt}.")
        return result

    def _read_form(self) -> Mapping[str, list[str]]:
        if len(self._body) > MAX_BODY:
            raise RequestTooLarge
        kind = self.request.headers.get("Content-Type", FORM).partition(";")[0].strip().lower()
        if kind != FORM:
            raise UnsupportedContentType("Send the form as application/x-www-form-urlencoded")
        try:
            return parse_qs(self._body.decode(), keep_blank_values=True, max_num_fields=MAX_FIELDS, errors="strict")
        except ValueError:  # UnicodeDecodeError is one
            raise InvalidValue("The form cannot be read") from None

    def _to_sign_in(self, route: Route) -> Reply:
        path = self.visit.asked.path if not route.writes else "/"
        if not route.writes and self.request.query:
            path += f"?{self.request.query}"
        return Redirect(path_with(SIGN_IN, next=path if path != "/" else ""))

    def _error_page(self, error: Exception) -> View:
        if not isinstance(error, GatewayError):
            gateway_log.error("%s failed in the console", self.request_id, exc_info=error)
            error = InternalError()
        self._note_outcome(error)
        self.set_status(error.status)
        for name, value in error.headers().items():
            if name.lower() in ("allow", "retry-after"):
                self.set_header(name, value)
        values = {
            "text": _message(error),
            "request_id": self.request_id,
            "may_sign_in": isinstance(error, SignInRefused) and not self.visit.is_signed_in,
        }
        return View("error.html", HTTPStatus(error.status).phrase, values)

    def _note_outcome(self, error: GatewayError) -> None:
        self.outcome, self.detail = error.code or "error", error.log_text()

    def _send(self, reply: View | Redirect | Document) -> None:
        match reply:
            case View():
                self._send_page(reply)
            case Redirect(path):
                self.visit.keep_notes()
                self._send_redirect(self.site.root_path + path)
            case Document(content):
                self.set_header("Content-Type", "application/json")
                self.write(content)
        self.jar.write(self.set_cookie)
        self.finish()

    async def _send_in_pieces(
        self,
        pieces: AsyncGenerator[bytes],
        place: AbstractContextManager[None],
        headers: Mapping[str, str],
        *,
        within: float | None = None,
    ) -> None:
        """Send a body while it is made; the end of the connection cancels it."""
        try:
            with place:
                for name, value in headers.items():
                    self.set_header(name, value)
                self.jar.write(self.set_cookie)
                await self._send_body(pieces, within)
        except TooManyRequests as error:
            await pieces.aclose()
            self._send(self._error_page(error))

    async def _send_body(self, pieces: AsyncGenerator[bytes], within: float | None) -> None:
        try:
            is_sent = await self._sender.send(pieces, within=within)
        except Exception as error:
            # The headers are sent: the browser learns of the failure by the end of the connection.
            gateway_log.error("%s failed in the console", self.request_id, exc_info=error)
            self._note_outcome(InternalError())
            self._sender.cut()
            return
        if not is_sent:
            self._note_client_left()
            return
        self.finish()

    def _note_client_left(self) -> None:
        self.outcome = CLIENT_CLOSED
        self.set_status(499)

    def on_connection_close(self) -> None:
        """The browser has left: what it waited for ends."""
        self._sender.client_left()
        self._attended.client_left()

    def _send_page(self, view: View) -> None:
        try:
            html = self.site.render(view, self.visit)
        except Exception as error:
            # A fault of a template is one of the gateway; the error page itself is plain.
            if view.template == "error.html":
                raise
            html = self.site.render(self._error_page(error), self.visit)
        if view.status != HTTPStatus.OK:
            self.set_status(view.status)
        self.set_header("Content-Type", "text/html; charset=utf-8")
        self.write(html)

    def _send_redirect(self, url: str) -> None:
        if self.request.headers.get("HX-Request") == "true":  # a redirect of a partial update is one of the page
            self.set_status(HTTPStatus.OK)
            self.set_header("HX-Redirect", url)
            return
        self.set_status(HTTPStatus.SEE_OTHER)
        self.set_header("Location", url)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Tornado's own refusals; plain, because there may be no visit."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(HTTPStatus(status_code).phrase)

    def on_finish(self) -> None:
        visit = getattr(self, "visit", None)
        if visit is None or not self.site.services.settings.log.access:
            return
        self.site.access_log.write(
            AccessLine(
                request_id=self.request_id,
                method=visit.asked.method,
                path=visit.asked.path,
                status=self.get_status(),
                ms=round(self.request.request_time() * 1000, 3),
                outcome=self.outcome,
                account=visit.account,
                key=visit.user.id if visit.user is not None else "",
                detail=self.detail,
            )
        )


def _read_query(text: str) -> Mapping[str, list[str]]:
    try:
        return parse_qs(text, max_num_fields=MAX_QUERY)
    except ValueError:
        return {}  # no page has so many parameters


def console_rules(site: Site) -> list[Any]:
    """Tornado's rules for the console."""
    root = f"(?:{re.escape(site.root_path)})?"  # a proxy may keep or remove it
    return [
        (rf"{root}/static/([0-9a-f]{{16}})/([\w./-]+)", StaticHandler, {"files": site.files}),
        (r".*", PageHandler, {"site": site}),
    ]


def _message(error: GatewayError) -> str:
    match error:
        case UnknownURL():
            return "There is no such page."
        case MethodNotAllowed():
            return "This page cannot be used that way."
        case InternalError():
            return "Something went wrong in the gateway. The operator finds it in the log under this number."
    return f"{error.message.rstrip('.')}."
