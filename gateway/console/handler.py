"""One request of a page: session, audience, XSRF token and form are checked here, for every route of the table.

Session, route and audience are checked before the body is read, so nothing is kept of the body of a stranger whose
request is refused.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from http import HTTPStatus
from typing import Any

from tornado.web import RequestHandler, stream_request_body

from gateway.console.admission import Admitted, admit, admit_same
from gateway.console.form_body import admit_form, read_form
from gateway.console.page_run import PageRun, RefusedForm
from gateway.console.replies import Document, Download, Redirect, Reply, Stream, View
from gateway.console.site import Site
from gateway.console.static_files import StaticHandler
from gateway.errors import GatewayError, InternalError, MethodNotAllowed, SignInRefused, UnknownURL
from gateway.web.attended import ClientLeft
from gateway.web.handler import LoggedRequest, WebHandler
from gateway.web.piecewise import PIECE_WITHIN
from gateway.web.request_body import has_body
from gateway.web.zero_character import refuse_zero

#: Of lines that are sent one by one: a proxy must not collect them.
LINES: Mapping[str, str] = {"Content-Type": "application/x-ndjson", "X-Accel-Buffering": "no"}
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
    "object-src 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@stream_request_body
class PageHandler(WebHandler):
    """A request for a page."""

    own_headers = HEADERS
    _admitted: Admitted

    def initialize(self, site: Site) -> None:
        self.use(site.surface)
        self.site = site

    async def prepare(self) -> None:
        self.visit = self.site.visit(self.request, self.get_cookie)
        try:
            admitted = await admit(self.site.router, self.visit, self.request.query)
            if isinstance(admitted, Admitted):
                self._admitted = admitted
                admit_form(self.body, is_public=admitted.route.audience == "public")
        except Exception as error:
            # The handler's edge: every exception becomes a page.
            self.refuse(error)
        else:
            if isinstance(admitted, Redirect):
                self._send(admitted)

    async def _answer(self) -> None:
        try:
            reply = await self._reply()
        except ClientLeft:
            self.note_client_left()
            return
        except Exception as error:
            # The handler's edge: every exception becomes a page.
            reply = self._error_page(error)
        if isinstance(reply, RefusedForm):
            self.set_status(self.note_error(reply.error).status)
            reply = reply.reply
        match reply:
            case Stream(lines):  # of a call in the playground
                await self._send_file(lines, self.site.playground.place(self.visit.actor.id), LINES)
            case Download(name, content_type, pieces):
                headers = {"Content-Type": content_type, "Content-Disposition": f'attachment; filename="{name}"'}
                place = self.surface.downloads.place(self.visit.actor.name)
                await self._send_file(pieces, place, headers, within=PIECE_WITHIN)
            case _:
                self._send(reply)

    get = head = post = put = patch = delete = options = _answer

    async def _reply(self) -> Reply | RefusedForm:
        visit, route = self.visit, self._admitted.route
        admit_again = partial(admit, self.site.router, visit, self.request.query)
        if visit.is_signed_in and (route.writes or has_body(self.request)):
            again = await admit_again()  # rights end while a body arrives
            if isinstance(again, Redirect):
                return again
        run = PageRun(self.site, visit, self._admitted, self.attended, admit_again)
        if not route.writes:
            return await run.read()
        visit.form = read_form(self.request, self.body)
        refuse_zero(visit.form)
        return await run.write(self.request.headers)

    def refuse(self, error: Exception) -> None:
        """Answer with the page of the error."""
        self._send(self._error_page(error))

    def _error_page(self, error: Exception) -> View:
        error = self.note_error(error)
        self.set_status(error.status)
        for name, value in error.headers().items():
            if name.lower() in ("allow", "retry-after"):
                self.set_header(name, value)
        return error_page(error, request_id=self.request_id, is_signed_in=self.visit.is_signed_in)

    def _send(self, reply: View | Redirect | Document) -> None:
        match reply:
            case View():
                self._send_page(reply)
            case Redirect(path):
                self.visit.keep_notes()
                _redirect(self, self.site.root_path + path)
            case Document(content):
                self.set_header("Content-Type", "application/json")
                self.write(content)
        self.visit.cookies.write(self.set_cookie)
        self.finish()

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

    async def _send_file(
        self,
        pieces: AsyncGenerator[bytes],
        place: AbstractContextManager[None],
        headers: Mapping[str, str],
        *,
        within: float | None = None,
    ) -> None:
        self.visit.cookies.write(self.set_cookie)
        check = partial(admit_same, self.site.router, self.visit, self.request.query, self.visit.actor)
        if not await self.send_pieces(pieces, place, headers, within=within, check=check):
            self.note_client_left()

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Tornado's own refusals; plain, because there may be no visit."""
        self.set_header("Content-Type", "text/plain; charset=utf-8")
        self.finish(HTTPStatus(status_code).phrase)

    def logged(self) -> LoggedRequest | None:
        visit = getattr(self, "visit", None)
        if visit is None:
            return None
        key = visit.user.id if visit.user is not None else ""
        return LoggedRequest(path=visit.asked.path, account=visit.account, key=key)


def _redirect(handler: RequestHandler, url: str) -> None:
    if handler.request.headers.get("HX-Request") == "true":  # a redirect of a partial update is one of the page
        handler.set_status(HTTPStatus.OK)
        handler.set_header("HX-Redirect", url)
        return
    handler.set_status(HTTPStatus.SEE_OTHER)
    handler.set_header("Location", url)


def console_rules(site: Site) -> list[Any]:
    """Tornado's rules for the console."""
    root = f"(?:{re.escape(site.root_path)})?"  # a proxy may keep or remove it
    return [
        (rf"{root}/static/([0-9a-f]{{16}})/([\w./-]+)", StaticHandler, {"files": site.files}),
        (r".*", PageHandler, {"site": site}),
    ]


def error_page(error: GatewayError, *, request_id: str, is_signed_in: bool) -> View:
    """The page that says why a request was refused; its reader finds the request in the log by `request_id`."""
    values = {
        "text": _error_text(error),
        "request_id": request_id,
        "may_sign_in": isinstance(error, SignInRefused) and not is_signed_in,
    }
    return View("error.html", HTTPStatus(error.status).phrase, values)


def _error_text(error: GatewayError) -> str:
    match error:
        case UnknownURL():
            return "There is no such page."
        case MethodNotAllowed():
            return "This page cannot be used that way."
        case InternalError():
            return "Something went wrong in the gateway. The operator finds it in the log under this number."
    return f"{error.message.rstrip('.')}."
