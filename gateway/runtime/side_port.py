"""The side port: `/metrics`, `/healthz` and `/readyz`, answered by the supervisor, also while no worker serves.

Health answers have only booleans: no addresses, versions or counts.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Protocol

from tornado.web import Application, RequestHandler

from gateway.http_server.connection_limit import OnFull, Trusted
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer


class Measured(Protocol):
    """Metrics."""

    def text(self, accept: str) -> tuple[bytes, str]:
        """In the form that an Accept header asks for, and their Content-Type."""


class StatusSource(Protocol):
    """What the side port reports."""

    async def measured(self) -> Measured:
        """The metrics up to now."""

    async def is_ready(self) -> Mapping[str, bool]:
        """The conditions of readiness, by name."""


class SideHandler(RequestHandler):
    """A handler of the side port."""

    def initialize(self, source: StatusSource) -> None:
        self.source = source

    def set_default_headers(self) -> None:
        self.set_header("Cache-Control", "no-store")
        self.set_header("X-Content-Type-Options", "nosniff")


class MetricsHandler(SideHandler):
    """The metrics, as Prometheus text or OpenMetrics by the Accept header."""

    async def get(self) -> None:
        body, content_type = (await self.source.measured()).text(self.request.headers.get("Accept", ""))
        self.set_header("Content-Type", content_type)
        self.finish(body)


class HealthHandler(SideHandler):
    """200 while the process runs."""

    def get(self) -> None:
        self.finish({"live": True})


class ReadyHandler(SideHandler):
    """Store reachable, a worker serving, at least one target working, not draining: 200, else 503."""

    async def get(self) -> None:
        ready = await self.source.is_ready()
        if not all(ready.values()):
            self.set_status(503)
        self.finish({"ready": all(ready.values()), **ready})


class SidePort:
    """The HTTP server of the side port."""

    def __init__(
        self, source: StatusSource, limits: ServerLimits, *, trusted: Trusted = tuple, on_full: OnFull | None = None
    ) -> None:
        arguments = {"source": source}
        application = Application(
            [
                ("/metrics", MetricsHandler, arguments),
                ("/healthz", HealthHandler, arguments),
                ("/readyz", ReadyHandler, arguments),
            ],
            log_function=lambda handler: None,
        )
        self._server = HTTPServer(application, limits, server_header="", trusted=trusted, on_full=on_full)
        self.address: tuple[str, int] = ("", 0)

    async def start(self, sock: socket.socket) -> None:
        """Serve on a bound socket."""
        self.address = sock.getsockname()[:2]
        await self._server.start(sock)

    async def close(self) -> None:
        """Stop serving."""
        self._server.close_listener()
        await self._server.drain(0.0)
