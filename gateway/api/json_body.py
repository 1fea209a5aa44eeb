"""Reads a JSON body: limits its size, decompresses it, and reads a large one only after the key was confirmed."""

from __future__ import annotations

import zlib
from collections.abc import Awaitable

from gateway.api.handler import KeyedHandler
from gateway.api.request_metadata import RequestMetadata
from gateway.errors import InvalidJSON, RequestTooLarge, UnsupportedContentType
from gateway.inference.idempotency import request_digest

#: Bytes; a body up to this size is read first, and admission checks the key in its own round trip to the store.
SMALL_BODY = 65_536


class JsonBody:
    """The body of one request."""

    __slots__ = ("_content", "_max_bytes", "_metadata", "_parts", "size")

    _metadata: RequestMetadata

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._parts: list[bytes] = []
        self._content = b""
        self.size = 0  # bytes, decompressed

    def begin(self, handler: KeyedHandler) -> Awaitable[None] | None:
        """Prepare to read the body; the account of the key is known."""
        self._metadata = handler.metadata
        exchange = handler.exchange
        exchange.set_max_body_size(self._max_bytes)
        length = exchange.head.content_length
        return None if 0 < length <= SMALL_BODY else confirm_before_body(handler, length, self._max_bytes)

    def feed(self, chunk: bytes) -> None:
        """Add bytes of the body."""
        self._parts.append(chunk)

    def complete(self) -> None:
        """The whole body was read."""

    def take(self) -> bytes:
        """The whole body, decompressed; raises UnsupportedContentType, InvalidJSON or RequestTooLarge."""
        if not self._metadata.sends_json:
            raise UnsupportedContentType("Content-Type must be application/json")
        parts, self._parts = self._parts, []
        content = parts[0] if len(parts) == 1 else b"".join(parts)
        coding = self._metadata.coding
        if coding == "gzip":
            content = _gunzip(content, self._max_bytes)
        elif coding != "identity":
            raise UnsupportedContentType("Content-Encoding must be gzip or identity")
        self._content, self.size = content, len(content)
        return content

    def digest(self, path: str) -> str:
        """A digest that is equal for equal requests; compared when an Idempotency-Key is used again."""
        return request_digest(path, self._content)

    def close(self) -> None:
        """Free the body at the end of the request."""
        self._content = b""


async def confirm_before_body(handler: KeyedHandler, length: int, most: int) -> None:
    """Confirm the key before a large body is read; RequestTooLarge if Content-Length is above `most` bytes."""
    await handler.confirm()
    if length > most:
        raise RequestTooLarge()


def _gunzip(body: bytes, limit: int) -> bytes:
    """Decompress up to `limit` bytes, so that a decompression bomb uses no more memory than a valid body."""
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
