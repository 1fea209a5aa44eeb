"""How a JSON endpoint reads its body: bounded, decompressed, and large ones only after the key was confirmed."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable

from gateway.api.handler import KeyedHandler
from gateway.errors import InvalidJSON, RequestTooLarge, UnsupportedContentType

#: Bodies up to this size are read before the store was asked: admission then confirms the key in the same round trip.
SMALL_BODY = 65_536


class BodyHandler(KeyedHandler):
    """A handler that wants the request's body."""

    body: list[bytes]  # the pieces of it

    def on_authenticated(self) -> Awaitable[None] | None:
        """Refuse what its headers already condemn; confirm the key before a large body is read."""
        self.body = []
        if self.method != "POST":
            return None
        self.exchange.set_max_body_size(self.max_body())
        length = self.exchange.head.content_length
        return None if 0 < length <= SMALL_BODY else self._confirm_before_body(length)

    async def _confirm_before_body(self, length: int) -> None:
        await self.confirm()
        if length > self.max_body():
            raise RequestTooLarge()

    def max_body(self) -> int:
        """The largest body this endpoint takes, in bytes."""
        return self.gateway.settings.server.max_json_body

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Collect the body; the transport enforces its size."""
        self.body.append(chunk)
        return None

    def read_body(self) -> bytes:
        """The whole body, decompressed."""
        if not self.caller.sends_json:
            raise UnsupportedContentType("Content-Type must be application/json")
        body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        self.body = []
        if self.caller.coding == "identity":
            return body
        if self.caller.coding != "gzip":
            raise UnsupportedContentType("Content-Encoding must be gzip or identity")
        return _gunzip(body, self.max_body())


def _gunzip(body: bytes, limit: int) -> bytes:
    """Decompress within `limit`, so that a bomb costs no more than an honest body."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(body, limit + 1)
    except zlib.error:
        raise InvalidJSON("The request body is not valid gzip") from None
    if len(plain) > limit:
        raise RequestTooLarge()
    if not inflater.eof:
        raise InvalidJSON("The request body is truncated gzip")
    return plain
