"""Reads a form with an audio file.

The form is parsed as it arrives, and its file goes into a spool. The call is admitted after the whole form was read and
found valid. The provider then reads the file from the spool, again at every attempt. So an incomplete or invalid form
holds no money and calls no upstream, and a file is never in memory as a whole. Sharp edge: the first error of a large
body is sent at once; that of a small body is sent after the key was confirmed.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Collection
from pathlib import Path

from gateway.api.handler import KeyedHandler
from gateway.api.json_body import SMALL_BODY, confirm_before_body
from gateway.errors import BadRequest, GatewayError, RequestTooLarge, UnsupportedContentType
from gateway.inference.idempotency import request_digest
from gateway.uploads.form import Form, FormReader
from gateway.uploads.spool import Spool
from gateway.uploads.upload import Upload, UploadedForm

INFLATED = 65_536  # most bytes of one decompression step


class MultipartBody:
    """The body of one request."""

    def __init__(self, folder: Path, *, max_bytes: int, large_fields: Collection[str]) -> None:
        self._spool = Spool(folder)
        self._max_bytes = max_bytes
        self._large_fields = large_fields  # names of text fields that may be long
        self._parts: list[bytes] = []
        self._content_type = ""
        self._coding = "identity"
        self._form: Form | None = None  # set when the form is complete
        self._upload: Upload | None = None  # the audio file, if there is one
        self._reader: FormReader | None = None  # set when the key was confirmed, or the whole body was read
        self._form_error: GatewayError | None = None  # the error of the form
        self._inflater: zlib._Decompress | None = None
        self._inflated = 0
        self.size = 0

    def begin(self, handler: KeyedHandler) -> Awaitable[None] | None:
        """Prepare to read the body; the account of the key is known."""
        self._content_type = handler.headers.get("Content-Type", "")
        self._coding = handler.metadata.coding
        handler.exchange.set_max_body_size(self._max_bytes)
        length = handler.exchange.head.content_length
        return None if 0 < length <= SMALL_BODY else self._confirm(handler, length)

    async def _confirm(self, handler: KeyedHandler, length: int) -> None:
        await confirm_before_body(handler, length, self._max_bytes)
        if not handler.logged:  # otherwise the client is gone, and nothing would close the reader
            self._open()

    def feed(self, chunk: bytes) -> Awaitable[None] | None:
        """Parse a large form as it arrives and raise its first error; collect a small one."""
        if self._reader is None:
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
            return UploadedForm(self._form, self._upload)
        finally:
            del error  # its traceback refers to this frame, and so to the upload

    def digest(self, path: str) -> str:
        """A digest that is equal for equal forms; it does not depend on the boundary."""
        assert self._form is not None
        return request_digest(path, self._form.digest.encode())

    def close(self) -> None:
        """Free the file and the reader at the end of the request."""
        self._spool.close()
        if self._reader is not None:  # the form was incomplete or invalid
            self._reader.close()

    def _open(self) -> FormReader:
        self._reader = FormReader(self._content_type, self._spool, file="file", large_fields=self._large_fields)
        if self._coding == "gzip":
            self._inflater = zlib.decompressobj(wbits=31)
        elif self._coding != "identity":
            raise UnsupportedContentType("Content-Encoding must be gzip or identity")
        return self._reader

    def _read(self, chunk: bytes, reader: FormReader) -> Awaitable[None] | None:
        if self._inflater is not None:
            return self._inflate(chunk, reader, self._inflater)
        reader.feed(chunk)
        return self._spool.drain() if self._spool.full else None

    async def _inflate(self, chunk: bytes, reader: FormReader, inflater: zlib._Decompress) -> None:
        """Decompress in small steps, so that a decompression bomb uses no more memory than a valid body."""
        while chunk:
            try:
                plain = inflater.decompress(chunk, INFLATED)
            except zlib.error:
                raise BadRequest("The request body is not valid gzip") from None
            if inflater.unused_data:  # zlib would copy it at each step: 26 MB in steps of 64 KB took 3.5 s
                raise BadRequest("The request body has bytes after the end of its gzip data")
            chunk = inflater.unconsumed_tail
            self._inflated += len(plain)
            if self._inflated > self._max_bytes:
                raise RequestTooLarge()
            reader.feed(plain)
            if self._spool.full:
                await self._spool.drain()

    async def _finish(self) -> None:
        reader = self._reader or self._open()
        parts, self._parts = self._parts, []
        for chunk in parts:
            pending = self._read(chunk, reader)
            if pending is not None:
                await pending
        if self._inflater is not None and not self._inflater.eof:
            raise BadRequest("The request body is truncated gzip")
        self._form = reader.finish()
        self._reader = None
        await self._spool.drain()
        self._upload = await Upload.of(self._form, self._spool)
