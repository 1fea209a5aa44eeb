"""The console of one process: its routes, templates and files, and the services behind them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from urllib.parse import parse_qs

from tornado.escape import xhtml_escape
from tornado.httputil import HTTPServerRequest

from gateway.console.cookies import Cookies
from gateway.console.menu import menu_of
from gateway.console.playground_runs import PlaygroundRuns
from gateway.console.rendering import render
from gateway.console.replies import View
from gateway.console.route import PageRoute, PageRouter
from gateway.console.running_imports import RunningImports
from gateway.console.static_files import own_files
from gateway.console.table import ROUTES
from gateway.console.visit import Asked, Visit
from gateway.console.xsrf import FIELD
from gateway.http_server.client_address import is_trusted, networks
from gateway.services.services import AdminServices
from gateway.web.fair_turns import FairTurns
from gateway.web.handler import Surface
from gateway.web.window_counts import ChangeCounts

ALL_ALERTS = "/site/alerts"  # it lists what the other pages have at the top
MOST_AT_ONCE = 8  # pages; more would only fill the memory, and the store with requests at one moment
SHARE = 4  # of them of one person, or of one network of people who are not signed in
MOST_OF_ONE = 64  # that wait
MOST_WAITING = 512
MAX_QUERY = 100  # parameters
CROWDED = "Too many of your pages are being read at the moment; try again in a moment"
MOST_CHANGES = 120  # in ten minutes: a change every five seconds
LIMITED_AUDIENCES = frozenset({"signed_in", "member", "owner"})


class Site:
    """What the handlers share."""

    def __init__(self, services: AdminServices) -> None:
        self.services = services
        self.surface = Surface("the console", lambda: services.settings)
        self.router = PageRouter(ROUTES)
        self.files = own_files()
        self.playground = PlaygroundRuns()
        self.imports = RunningImports()
        self.changes = ChangeLimits()
        self.waits = services.places  # also of pages that wait for others
        self.turns = FairTurns(  # of pages that are read
            MOST_AT_ONCE, share=SHARE, most_of_one=MOST_OF_ONE, most=MOST_WAITING, refusal=CROWDED
        )
        self.root_path = services.settings.console.root_path

    def turn(self, visit: Visit) -> AbstractAsyncContextManager[None]:
        """The turn of a page: people share them, and so do the networks of those who are not signed in."""
        if visit.is_signed_in:
            return self.turns.turn_of(visit.actor.name)
        return self.turns.turn(visit.asked.address)

    def visit(self, request: HTTPServerRequest, read_cookie: Callable[[str], str | None]) -> Visit:
        """A new visit; `identify` of it finds out who makes it."""
        is_secure = self._is_secure(request)
        asked = Asked(
            method=request.method or "",
            path=self._own_path(request.path),
            host=request.host_name,
            query=_read_query(request.query),
            address=self.surface.client_address(request),
            user_agent=request.headers.get("User-Agent", ""),
            is_secure=is_secure,
        )
        return Visit(
            self.services,
            asked,
            Cookies(read_cookie, secure=is_secure),
            imports=self.imports,
        )

    def _is_secure(self, request: HTTPServerRequest) -> bool:
        """Whether the browser came over HTTPS."""
        if request.protocol == "https" or self.services.settings.console.public_url.startswith("https://"):
            return True
        trusted = networks(self.services.settings.server.trusted_proxies)
        forwarded = request.headers.get("X-Forwarded-Proto", "")
        return forwarded.strip().lower() == "https" and is_trusted(request.remote_ip or "", trusted)

    def _own_path(self, path: str) -> str:
        """The path of a request without `root_path`, which a proxy may have removed."""
        if self.root_path and (path == self.root_path or path.startswith(f"{self.root_path}/")):
            return path[len(self.root_path) :] or "/"
        return path

    def static(self, name: str) -> str:
        """The address of a stylesheet or script."""
        return f"{self.root_path}{self.files.path(name)}"

    def render(self, view: View, visit: Visit) -> bytes:
        """The HTML of a page."""
        sees_site = visit.is_signed_in and visit.actor.may("read") and visit.asked.path != ALL_ALERTS
        values = {
            "visit": visit,
            "attention": self.services.attention.shown_to(visit.actor.id) if sees_site else [],
            "attention_back": visit.asked.path if visit.asked.method == "GET" else "",
            "title": view.title,
            "menu": menu_of(visit, self.router.routes),
            "notes": visit.take_notes(),
            "path": visit.asked.path,
            "static": self.static,
            "xsrf_field": lambda: f'<input type="hidden" name="{FIELD}" value="{xhtml_escape(visit.xsrf())}">',
            "typed": lambda name, default="": visit.raw(name) if visit.error is not None else default,
        }
        return render(view.template, self.services.settings, {**values, **view.values})


def _read_query(text: str) -> Mapping[str, list[str]]:
    try:
        return parse_qs(text, max_num_fields=MAX_QUERY)
    except ValueError:
        return {}  # no page has so many parameters


class ChangeLimits:
    """Counts the changes of a process by person. Operators have no limit."""

    def __init__(self) -> None:
        self._counts = ChangeCounts()

    def count(self, visit: Visit, route: PageRoute) -> None:
        """Count a change, if the route has a limit; TooManyRequests."""
        if (
            route.audience in LIMITED_AUDIENCES
            and not route.always
            and visit.user is not None
            and not visit.actor.is_operator
        ):
            self._counts.count(visit.user.id, most=MOST_CHANGES)
