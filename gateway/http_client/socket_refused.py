"""The refusal of a WebSocket by an upstream, apart from the client that needs aiohttp."""

from __future__ import annotations

from collections.abc import Mapping


class SocketRefused(Exception):
    """The upstream answered the handshake with another status than 101; a provider makes a typed error of it."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(f"status {status}")
        self.status = status
        self.headers = headers
        self.body = body
