"""The console of one process: its routes, templates and files, and the services behind them."""

from __future__ import annotations

import asyncio

from tornado.escape import xhtml_escape

from gateway.admin.services import AdminServices
from gateway.console.change_limits import ChangeLimits
from gateway.console.menu import menu_of
from gateway.console.playground_runs import PlaygroundRuns
from gateway.console.rendering import render
from gateway.console.replies import View
from gateway.console.route import Router
from gateway.console.running_imports import RunningImports
from gateway.console.static_files import own_files
from gateway.console.table import ROUTES
from gateway.console.visit import Visit
from gateway.console.xsrf import FIELD
from gateway.http_server.client_address import client_address, is_trusted, networks
from gateway.http_server.piecewise import RunningDownloads
from gateway.log import AccessLog

MOST_AT_ONCE = 8  # pages; more would only fill the memory, and the store with requests at one moment


class Site:
    """What the handlers share."""

    def __init__(self, services: AdminServices) -> None:
        self.services = services
        self.router = Router(ROUTES)
        self.files = own_files()
        self.access_log = AccessLog()
        self.playground = PlaygroundRuns()
        self.imports = RunningImports()
        self.changes = ChangeLimits()
        self.downloads = RunningDownloads()
        self.waits = services.places  # also of pages that wait for others
        self.turns = asyncio.Semaphore(MOST_AT_ONCE)  # of pages that are read
        self.root_path = services.settings.console.root_path

    def client_address(self, peer: str, forwarded_for: str) -> str:
        """The address of the client, behind the proxies that the operator trusts."""
        return client_address(peer, forwarded_for, networks(self.services.settings.server.trusted_proxies))

    def is_secure(self, peer: str, forwarded_proto: str) -> bool:
        """Whether the browser came over HTTPS."""
        if self.services.settings.console.public_url.startswith("https://"):
            return True
        trusted = networks(self.services.settings.server.trusted_proxies)
        return forwarded_proto.strip().lower() == "https" and is_trusted(peer, trusted)

    def own_path(self, path: str) -> str:
        """The path of a request without `root_path`, which a proxy may have removed."""
        if self.root_path and (path == self.root_path or path.startswith(f"{self.root_path}/")):
            return path[len(self.root_path) :] or "/"
        return path

    @property
    def first_page_of_site(self) -> str:
        """The first page in the navigation of viewers and operators; empty without one."""
        return next((route.path for route in self.router.routes if route.menu and route.audience == "viewer"), "")

    def static(self, name: str) -> str:
        """The address of a stylesheet or script."""
        return f"{self.root_path}{self.files.path(name)}"

    def render(self, view: View, visit: Visit) -> bytes:
        """The HTML of a page."""
        values = {
            "visit": visit,
            "title": view.title,
            "menu": menu_of(visit, self.router.routes),
            "notes": visit.take_notes(),
            "path": visit.asked.path,
            "static": self.static,
            "xsrf_field": lambda: f'<input type="hidden" name="{FIELD}" value="{xhtml_escape(visit.xsrf())}">',
            "typed": lambda name, default="": visit.raw(name) if visit.error is not None else default,
        }
        return render(view.template, self.services.settings, {**values, **view.values})
