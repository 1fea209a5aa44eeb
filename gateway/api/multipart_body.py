"""How an endpoint reads a form with a sound in it.

The form is read as it arrives, its file into a spool; the call is admitted once all of it is here and sound, and the
provider then reads the file from the spool, at every attempt anew. So a form that is cut off or wrong has held nothing
and sent nothing, and no file is ever whole in memory. Sharp edge: of a large body the first fault is the answer, at
once; of a small one, whose key the store has not confirmed yet, it waits for that.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Collection
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.api.json_body import SMALL_BODY, confirm_before_body
from gateway.errors import BadRequest, GatewayError, RequestTooLarge, UnsupportedContentType
from gateway.inference.idempotency import request_digest
from gateway.uploads.form import Form, FormReader
from gateway.uploads.spool import Spool
from gateway.uploads.upload import Upload, UploadedForm

if TYPE_CHECKING:
    from gateway.api.handler import KeyedHandler

INFLATED = 65_536  # bytes that one step of decompression gives at most


class MultipartBody:
    """The body of one request."""

    __slots__ = (
        "_coding",
        "_content_type",
        "_fault",
        "_file_field",
        "_form",
        "_inflated",
        "_inflater",
        "_large_fields",
        "_max_bytes",
        "_parts",
        "_reader",
        "_spool",
        "_upload",
        "size",
    )

    def __init__(
        self, folder: Path, *, max_bytes: int, file_field: str = "file", large_fields: Collection[str] = ()
    ) -> None:
        self._spool = Spool(folder)
        self._max_bytes = max_bytes
        self._file_field = file_field
        self._large_fields = large_fields  # text fields that may be longer than others
        self._parts: list[bytes] = []
        self._content_type = ""
        self._coding = "identity"
        self._form: Form | None = None  # once it is whole
        self._upload: Upload | None = None  # the sound in it, if there is one
        self._reader: FormReader | None = None  # once the key was confirmed, or the body is here
        self._fault: GatewayError | None = None  # of the form
        self._inflater: zlib._Decompress | None = None
        self._inflated = 0
        self.size = 0

    def begin(self, handler: KeyedHandler) -> Awaitable[None] | None:
        """The key is known and the body comes next."""
        self._content_type = handler.headers.get("Content-Type", "")
        self._coding = handler.metadata.coding
        handler.exchange.set_max_body_size(self._max_bytes)
        length = handler.exchange.head.content_length
        return None if 0 < length <= SMALL_BODY else self._confirm(handler, length)

    async def _confirm(self, handler: KeyedHandler, length: int) -> None:
        await confirm_before_body(handler, length, self._max_bytes)
        if not handler.logged:  # by a client that left meanwhile: nobody would close the reader
            self._open()

    def feed(self, chunk: bytes) -> Awaitable[None] | None:
        """Read a large form at once, and refuse it where it goes wrong; a small one waits for its end."""
        if self._reader is None:
            self._parts.append(chunk)
            return None
        return self._read(chunk, self._reader)

    async def complete(self) -> None:
        """All of the body is here; what is wrong with it is told by `take`."""
        try:
            await self._finish()
        except GatewayError as error:
            self._fault = error

    def take(self) -> UploadedForm:
        """The form; raises what is wrong with it."""
        fault, self._fault = self._fault, None
        try:
            if fault is not None:
                raise fault
            assert self._form is not None
            return UploadedForm(self._form, self._upload)
        finally:
            del fault  # its traceback holds this frame and this body, and by it the upload

    def digest(self, path: str) -> str:
        """What makes two requests with one Idempotency-Key the same; no boundary changes it."""
        assert self._form is not None
        return request_digest(path, self._form.digest.encode())

    def close(self) -> None:
        """The request is over."""
        self._spool.close()
        if self._reader is not None:  # of a form that was cut off, or went wrong
            self._reader.close()

    def _open(self) -> FormReader:
        self._reader = FormReader(self._content_type, self._spool, file=self._file_field, roomy=self._large_fields)
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
        """Decompress in small steps, so that a bomb costs no more than an honest body."""
        while chunk:
            try:
                plain = inflater.decompress(chunk, INFLATED)
            except zlib.error:
                raise BadRequest("The request body is not valid gzip") from None
            if inflater.unused_data:  # zlib keeps it: 26 MB, 64 KB at a time, took 3.5 s
                raise BadRequest("The request body goes on after the end of its gzip")
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
