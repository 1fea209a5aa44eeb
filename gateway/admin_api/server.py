"""The HTTP server of the console process: the admin API and, if they are wanted, the pages."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from typing import Any

from tornado.web import Application

from gateway.admin_api.api import AdminApi
from gateway.admin_api.body_limits import LIMITS
from gateway.admin_api.handler import AdminHandler, GreetingHandler, UnknownHandler
from gateway.admin_api.route import PREFIX
from gateway.http_server.client_address import networks
from gateway.http_server.connection_limit import OnFull
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.http_server.tls_state import TlsState


class AdminServer:
    """Serves an `AdminApi` on a socket, and `pages`, Tornado's rules for all other paths."""

    def __init__(
        self,
        api: AdminApi,
        *,
        pages: Sequence[Any] = (),
        limits: ServerLimits = LIMITS,
        on_full: OnFull | None = None,
        tls: TlsState | None = None,
    ) -> None:
        self._api = api
        arguments = {"api": api}
        root = f"(?:{re.escape(api.root_path)})?"  # a proxy may keep or remove it
        application = Application(
            [
                (rf"{root}{PREFIX}/.*", AdminHandler, arguments),
                *(pages or [(f"{root}/", GreetingHandler, arguments)]),
                (r".*", UnknownHandler, arguments),
            ],
            log_function=lambda handler: None,
        )
        self._server = HTTPServer(
            application,
            limits,
            server_header="",
            trusted=lambda: networks(api.services.settings.server.trusted_proxies),
            on_full=on_full,
            tls=tls,
        )
        self.address: tuple[str, int] = ("", 0)

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket."""
        self.address = sock.getsockname()[:2]
        await self._server.start(sock)

    async def close(self) -> None:
        """Stop serving; running requests are cut. Queued connections wait for the next process."""
        self._server.close_listener(accept_queued=False)
        await self._server.drain(0.0)
        self._api.surface.access_log.flush()
