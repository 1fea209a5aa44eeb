"""The body of one request: how much of it is kept, and for how long it is waited for."""

from __future__ import annotations

from typing import cast

from tornado.httputil import HTTPServerRequest

from gateway.errors import RequestTooLarge
from gateway.http_server.exchange import Exchange


class RequestBody:
    """Nothing is kept before `admit`, so a refused head costs no memory."""

    def __init__(self, request: HTTPServerRequest) -> None:
        self._request = request
        self._most = 0
        self._content = bytearray()

    @property
    def content(self) -> bytes:
        """What has arrived."""
        return bytes(self._content)

    def admit(self, most: int, *, within: float | None = None) -> None:
        """Allow `most` bytes; RequestTooLarge if the head announces more.

        They arrive at the server's minimum rate, or `within` so many seconds.
        """
        self._most = most
        if _announced(self._request) > most:
            raise RequestTooLarge
        if within is not None:
            cast(Exchange, self._request.connection).set_body_timeout(within)

    def add(self, chunk: bytes) -> None:
        """Keep a part; RequestTooLarge for a body of unknown length that turns out to be too long."""
        if len(self._content) + len(chunk) > self._most:
            self._content.clear()
            raise RequestTooLarge
        self._content += chunk


def has_body(request: HTTPServerRequest) -> bool:
    """Whether a body follows the head. It may take long, even if it turns out to be empty."""
    return "Transfer-Encoding" in request.headers or _announced(request) > 0


def _announced(request: HTTPServerRequest) -> int:
    """Bytes of the body as its Content-Length says; 0 without a valid one."""
    text = request.headers.get("Content-Length", "")
    return int(text) if text.isascii() and text.isdigit() else 0
