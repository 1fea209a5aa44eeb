"""State that the connections of one server share."""

from __future__ import annotations

import asyncio
from email.utils import formatdate

from gateway.http_server.head import HeaderNames
from gateway.http_server.limits import ServerLimits


class ServerState:
    """Limits, buffers and the coarse clock of one server; call `start` before its first use."""

    done: asyncio.Future[None]  # returned by a write that need not wait

    def __init__(self, limits: ServerLimits, *, server_header: str) -> None:
        self.limits = limits
        self.names = HeaderNames()
        self.read_buffer = bytearray(limits.read_buffer)
        self.read_view = memoryview(self.read_buffer)
        self.draining = False
        self.keeps_alive = True  # False: each connection is closed after its next answer
        self.own_headers = b""  # the lines that end every header block
        self.now = 0.0  # the event loop's time, at most one tick old
        self.tick = min(  # seconds between two checks of the time limits
            0.5,
            limits.header_timeout / 4,
            limits.keepalive_timeout / 4,
            limits.body_idle_timeout / 4,
            limits.write_timeout / 4,
        )
        self._server_header = server_header

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.done = loop.create_future()
        self.done.set_result(None)
        self.read_clock(loop)

    def read_clock(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time()
        server = f"\r\nServer: {self._server_header}" if self._server_header else ""
        self.own_headers = f"{server}\r\nDate: {formatdate(usegmt=True)}\r\n\r\n".encode("latin-1")
