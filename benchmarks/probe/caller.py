"""One client on one kept-alive connection, which sends a request when the answer before it is whole."""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.client import HTTPResponse
from types import TracebackType
from typing import Self

from msgspec import Struct

from benchmarks.fault import BenchFault

ANSWERS_WITHIN = 120.0  # seconds


class Answer(Struct, frozen=True):
    """A whole answer; `request_id` is the one that the access log knows it by."""

    request_id: str
    body: bytes


class Caller:
    """A connection to a port of loopback."""

    def __init__(self, port: int) -> None:
        self.told: Callable[[bytes], None] = lambda piece: None  # gets the pieces of a body as they arrive
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=ANSWERS_WITHIN)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.socket.close()

    def ask(self, request: bytes) -> Answer:
        """Send a request and read the whole answer; BenchFault unless it is a 200."""
        self.socket.sendall(request)
        response = HTTPResponse(self.socket, method="POST")
        try:
            response.begin()
            pieces = []
            while piece := response.read1():
                self.told(piece)
                pieces.append(piece)
            body = b"".join(pieces)
        finally:
            response.close()
        if response.status != 200:
            raise BenchFault(f"status {response.status}: {body[:300].decode(errors='replace')}")
        return Answer(response.getheader("x-request-id") or "", body)
