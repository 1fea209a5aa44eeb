"""Reads a form with files: audio, or images.

The form is parsed as it arrives, and its files go into a spool. The call is admitted after the whole form was read and
found valid. The provider then reads the files from the spool, again at every attempt. So an incomplete or invalid form
holds no money and calls no upstream, and a file is never in memory as a whole. Sharp edge: the first error of a large
body is sent at once; that of a small body is sent after the key was confirmed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from gateway.api.handler import KeyedHandler
from gateway.api.json_body import SMALL_LENGTHS, confirm_before_body
from gateway.api.path_aliases import form_with_model
from gateway.errors import BadRequest, GatewayError, UnsupportedContentType
from gateway.inference.idempotency import request_digest
from gateway.uploads.body_budgets import BodyBudgets
from gateway.uploads.budget import Share
from gateway.uploads.form import Form, FormReader
from gateway.uploads.form_kind import FormKind
from gateway.uploads.inflate import FREE, BodyInflater
from gateway.uploads.spool import Spool
from gateway.uploads.upload import UploadedForm


class MultipartBody:
    """The body of one request."""

    _share: Share  # of the memory budget
    _spool: Spool

    def __init__(self, budgets: BodyBudgets, *, kind: FormKind, max_bytes: int, model: str = "") -> None:
        self._budgets = budgets
        self._model = model  # in the path; it replaces the form's own
        self._max_bytes = max_bytes
        self._kind = kind
        self._parts: list[bytes] = []
        self._content_type = ""
        self._coding = "identity"
        self._form: Form | None = None  # set when the form is complete
        self._upload: Any = None  # what the kind makes of the files
        self._reader: FormReader | None = None  # set when the key was confirmed, or the whole body was read
        self._form_error: GatewayError | None = None  # the error of the form
        self._inflater: BodyInflater | None = None
        self._handler: KeyedHandler | None = None  # until the key was confirmed
        self._begun = False
        self.size = 0
        self.has_lone_surrogates = False
        self.is_large = False  # its parts are decoded as they arrive

    def begin(self, handler: KeyedHandler) -> Awaitable[None] | None:
        """Prepare to read the body; the account of the key is known."""
        assert handler.key is not None
        self._content_type = handler.headers.get("Content-Type", "")
        self._coding = handler.metadata.coding
        self._share = self._budgets.memory.share(handler.key.account)
        self._spool = self._budgets.spool(handler.key.account, self._share)
        self._begun = True
        handler.exchange.set_max_body_size(self._max_bytes)
        length = handler.exchange.head.content_length
        if length in SMALL_LENGTHS:
            self._handler = handler
            return None
        return self._confirm(handler, length)

    async def _confirm(self, handler: KeyedHandler, length: int) -> None:
        await confirm_before_body(handler, length, self._max_bytes)
        if not handler.logged:  # otherwise the client is gone, and nothing would close the reader
            self._open()

    def feed(self, chunk: bytes) -> Awaitable[None] | None:
        """Parse a large form as it arrives and raise its first error; collect a small one."""
        if self._reader is None:
            self._share.take(len(chunk))
            self._parts.append(chunk)
            return None
        return self._read(chunk, self._reader)

    async def complete(self) -> None:
        """Parse the rest of the form; `take` raises its error."""
        try:
            await self._finish()
        except GatewayError as error:
            self._form_error = error

    def take(self) -> UploadedForm:
        """The form; raises its first error."""
        error, self._form_error = self._form_error, None
        try:
            if error is not None:
                raise error
            assert self._form is not None
            form = form_with_model(self._form, self._model) if self._model else self._form
            return UploadedForm(form, self._upload)
        finally:
            del error  # its traceback refers to this frame, and so to the upload

    def without_surrogates(self) -> None:
        """Forms are UTF-8, which has no surrogates."""
        return

    def digest(self, path: str) -> str:
        """A digest that is equal for equal forms; it does not depend on the boundary."""
        assert self._form is not None
        return request_digest(path, self._form.digest.encode())

    def close(self) -> None:
        """Free the file and the reader at the end of the request."""
        self._handler = None
        self._parts.clear()
        if self._begun:
            self._spool.close()
            self._share.close()
        if self._reader is not None:  # the form was incomplete or invalid
            self._reader.close()

    def _open(self) -> FormReader:
        kind = self._kind
        self._reader = FormReader(
            self._content_type,
            self._spool,
            file=kind.file,
            more_files=kind.more_files,
            most_files=kind.most_files,
            large_fields=kind.large_fields,
            memory=self._share,
        )
        if self._coding == "gzip":
            self._inflater = BodyInflater(self._max_bytes, BadRequest)
        elif self._coding != "identity":
            raise UnsupportedContentType("Content-Encoding must be gzip or identity")
        return self._reader

    def _read(self, chunk: bytes, reader: FormReader) -> Awaitable[None] | None:
        if self._inflater is not None:
            return self._inflater.feed(chunk, self._take_inflated)
        reader.feed(chunk)
        return self._spool.drain() if self._spool.full else None

    async def _take_inflated(self, plain: bytes) -> None:
        """Parse the next inflated bytes; confirm the key before more than 64 KiB are inflated."""
        reader, inflater, handler = self._reader, self._inflater, self._handler
        assert reader is not None
        assert inflater is not None
        reader.feed(plain)
        if handler is not None and inflater.size >= FREE and not inflater.complete:
            await handler.confirm()
            self._handler = None
        if self._spool.full:
            await self._spool.drain()

    async def _finish(self) -> None:
        reader = self._reader or self._open()
        parts, self._parts = self._parts, []
        for chunk in parts:
            pending = self._read(chunk, reader)
            if pending is not None:
                await pending
        self._share.give_back(sum(map(len, parts)))
        if self._inflater is not None:
            self._inflater.finish()
        self._form = reader.finish()
        self._reader = self._handler = None
        await self._spool.drain()
        self._upload = await self._kind.uploaded(self._form, self._spool)
