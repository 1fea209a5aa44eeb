"""The HTTP server of the console process: the admin API and, if they are wanted, the pages."""

from __future__ import annotations

import re
import socket
from collections.abc import Sequence
from typing import Any

from tornado.httpserver import HTTPServer
from tornado.web import Application

from gateway.admin_api.api import AdminApi
from gateway.admin_api.handler import AdminHandler, GreetingHandler, UnknownHandler
from gateway.admin_api.route import PREFIX

IDLE_TIMEOUT = 65.0  # seconds
BODY_TIMEOUT = 30.0
MAX_HEADER = 65_536  # bytes
BACKLOG = 128


class AdminServer:
    """Serves an `AdminApi` on a socket, and `pages`, Tornado's rules for all other paths."""

    def __init__(self, api: AdminApi, *, pages: Sequence[Any] = ()) -> None:
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
            idle_connection_timeout=IDLE_TIMEOUT,
            body_timeout=BODY_TIMEOUT,
            max_header_size=MAX_HEADER,
            max_body_size=2**40,  # the handlers' own limit has an answer
        )
        self.address: tuple[str, int] = ("", 0)

    def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket."""
        sock.listen(BACKLOG)
        self.address = sock.getsockname()[:2]
        self._server.add_socket(sock)

    async def close(self) -> None:
        """Stop serving; running requests are cut."""
        self._server.stop()
        await self._server.close_all_connections()
        self._api.access_log.flush()
