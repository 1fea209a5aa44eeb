"""Reads a JSON body: limits its size, inflates it, examines a large one, and confirms the key before it costs much.

A body that arrives in one piece is read at once, and admission checks the key in its own round trip to the store. For
every other body, its bytes count in the budgets of the worker and of the account; over 64 KiB, plain or inflated, the
key is confirmed first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

from gateway.api.handler import KeyedHandler
from gateway.api.path_aliases import body_with_model
from gateway.api.request_metadata import RequestMetadata
from gateway.errors import GatewayError, RequestTooLarge, UnsupportedContentType
from gateway.inference.idempotency import request_digest
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.large_json import LARGE, Examination
from gateway.schemas.request_surrogates import refuse_in_names, without_surrogates
from gateway.uploads.body_budgets import BodyBudgets
from gateway.uploads.budget import Share
from gateway.uploads.inflate import FREE, BodyInflater

#: Bytes; a body up to this size is read first, and admission checks the key in its own round trip to the store.
SMALL_BODY = 65_536
SMALL_LENGTHS = range(1, SMALL_BODY + 1)  # a body of unknown length has 0, and is not small


class JsonBody:
    """The body of one request."""

    __slots__ = (
        "_budgets", "_content", "_digest", "_error", "_examined", "_handler", "_length", "_max_bytes",
        "_metadata", "_model", "_parts", "_share", "has_lone_surrogates", "size",
    )  # fmt: skip

    _metadata: RequestMetadata

    def __init__(self, max_bytes: int, budgets: BodyBudgets, model: str = "") -> None:
        self._max_bytes = max_bytes
        self._budgets = budgets
        self._model = model  # in the path; it replaces the body's own
        self._parts: list[bytes] = []
        self._content = b""
        self._length = 0  # as announced; 0 if it is not known
        self._handler: KeyedHandler | None = None  # until the body is complete
        self._share: Share | None = None  # of a body that came in several pieces
        self._examined: Examined | None = None  # of a large body
        self._digest = ""
        self._error: GatewayError | None = None
        self.size = 0  # bytes, inflated
        self.has_lone_surrogates = False

    def begin(self, handler: KeyedHandler) -> Awaitable[None] | None:
        """Prepare to read the body; the account of the key is known."""
        self._metadata = handler.metadata
        self._handler = handler
        exchange = handler.exchange
        exchange.set_max_body_size(self._max_bytes)
        length = self._length = exchange.head.content_length
        return None if 0 < length <= SMALL_BODY else confirm_before_body(handler, length, self._max_bytes)

    def feed(self, chunk: bytes) -> None:
        """Add bytes of the body; Overloaded or ConcurrencyLimited if the budgets have no room for them."""
        self._parts.append(chunk)
        if len(chunk) != self._length:
            assert self._handler is not None
            self._use(len(chunk), self._handler)

    def complete(self) -> Awaitable[None] | None:
        """The whole body was read: inflate and examine it if needed; `take` raises the error of that."""
        handler, self._handler = self._handler, None
        assert handler is not None
        if self._metadata.coding == "gzip" or (self._share is not None and self._share.size > LARGE):
            return self._prepare(handler)
        return None

    @property
    def is_large(self) -> bool:
        """Whether it takes long to decode."""
        return self._share is not None and self._share.size > SMALL_BODY

    def take(self) -> bytes | Examined:
        """The whole body, inflated; raises UnsupportedContentType, InvalidJSON, InvalidValue or RequestTooLarge."""
        metadata, error = self._metadata, self._error
        if not metadata.sends_json:
            raise UnsupportedContentType("Content-Type must be application/json")
        if metadata.coding not in ("identity", "gzip"):
            raise UnsupportedContentType("Content-Encoding must be gzip or identity")
        if error is not None:
            self._error = None
            try:
                raise error
            finally:
                del error  # its traceback refers to this frame, and so to the body
        content = self._content or self._join()
        self._content, self.size = content, len(content)
        found = content if self._examined is None else self._examined
        return body_with_model(found, self._model) if self._model else found

    def without_surrogates(self) -> bytes | None:
        """What `take` returned, with U+FFFD for lone surrogates; None if it has none, or is large.

        Decoders refuse a text with surrogates, so a text without them costs nothing. InvalidValue for one in a
        name.
        """
        content = self._content
        found = content if self._examined is not None else without_surrogates(content)
        if found is content:
            return None
        self.has_lone_surrogates = True
        refuse_in_names(found)
        body = body_with_model(found, self._model) if self._model else found
        return body if isinstance(body, bytes) else None

    def digest(self, path: str) -> str:
        """A digest that is equal for equal requests; compared when an Idempotency-Key is used again."""
        return self._digest or request_digest(path, self._content)

    def close(self) -> None:
        """Free the body at the end of the request."""
        self._content, self._examined = b"", None
        self._parts.clear()
        self._handler = None
        if self._share is not None:
            self._share.close()

    def _use(self, size: int, handler: KeyedHandler) -> None:
        """Count bytes in the budgets."""
        share = self._share
        if share is None:
            assert handler.key is not None
            share = self._share = self._budgets.memory.share(handler.key.account)
        share.take(size)

    def _join(self) -> bytes:
        parts, self._parts = self._parts, []
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def _prepare(self, handler: KeyedHandler) -> None:
        """Inflate and examine the body; `take` raises the error, after which the pipeline checks the key."""
        try:
            content = await asyncio.to_thread(self._join)  # it releases the interpreter's lock while it copies
            if self._metadata.coding == "gzip":
                content = await self._inflate(content, handler)
            if len(content) > LARGE and self._metadata.sends_json:
                assert handler.key is not None
                account, examination = handler.key.account, Examination(content)
                await handler.services.paced_steps.run(account, handler, examination.steps())
                self._examined = examination.result
                if self._examined.content is not content:
                    self.has_lone_surrogates = True
                    refuse_in_names(self._examined)
                if self._metadata.idempotency_key is not None:
                    self._digest = await asyncio.to_thread(request_digest, handler.path, content)
            self._content = content
        except GatewayError as error:
            self._error = error

    async def _inflate(self, compressed: bytes, handler: KeyedHandler) -> bytes:
        """Inflate the body; beyond 64 KiB only after the key was confirmed."""
        inflater, plain = BodyInflater(self._max_bytes), list[bytes]()
        confirmed = handler.exchange.head.content_length not in SMALL_LENGTHS

        async def take(piece: bytes) -> None:
            nonlocal confirmed
            self._use(len(piece), handler)
            plain.append(piece)
            if not confirmed and inflater.size >= FREE and not inflater.complete:
                await handler.confirm()
                confirmed = True

        await inflater.feed(compressed, take)
        inflater.finish()
        return b"".join(plain)


async def confirm_before_body(handler: KeyedHandler, length: int, most: int) -> None:
    """Confirm the key before a large body is read; RequestTooLarge if Content-Length is above `most` bytes."""
    await handler.confirm()
    if length > most:
        raise RequestTooLarge()
