"""The walk's reading half for endpoints that take a form with a sound in it.

The form is read as it arrives, its file into a spool; the call is admitted once all of it is here and sound, and the
provider then reads the file from the spool, at every attempt anew. So a form that is cut off or wrong has held nothing
and sent nothing, and no file is ever whole in memory. Sharp edge: of a large body the first fault is the answer, at
once; of a small one, whose key the store has not confirmed yet, it waits for that.
"""

from __future__ import annotations

import zlib
from collections.abc import Awaitable, Collection
from typing import TYPE_CHECKING, ClassVar, TypeVar

from gateway.api.answering_handler import AnsweringHandler
from gateway.api.quote import Terms
from gateway.errors import BadRequest, GatewayError, RequestTooLarge, UnsupportedContentType
from gateway.inference.idempotency import request_digest
from gateway.schemas.request_fields import RequestFields
from gateway.uploads.form import Form, FormReader
from gateway.uploads.spool import Spool
from gateway.uploads.upload import Upload

if TYPE_CHECKING:
    from gateway.http_server.exchange import Exchange
    from gateway.runtime.gateway import Gateway

R = TypeVar("R", bound=RequestFields)

INFLATED = 65_536  # bytes that one step of decompression gives at most


class FormHandler(AnsweringHandler[R]):
    """See the module; `decode` finds `form` and `upload` filled in."""

    file_field: ClassVar[str] = "file"
    roomy: ClassVar[Collection[str]] = ()  # text fields that may be longer than others

    def __init__(self, gateway: Gateway, exchange: Exchange, *, path: str, argument: str = "") -> None:
        super().__init__(gateway, exchange, path=path, argument=argument)
        self.spool = Spool(gateway.spools)
        self.form: Form | None = None  # once it is whole
        self.upload: Upload | None = None  # the sound in it, if there is one
        self._reader: FormReader | None = None  # once the key was confirmed, or the body is here
        self._fault: GatewayError | None = None  # of the form
        self._inflater: zlib._Decompress | None = None
        self._inflated = 0

    def max_body(self) -> int:
        return self.gateway.settings.server.max_audio_body

    async def _confirm_before_body(self, length: int) -> None:
        await super()._confirm_before_body(length)
        if not self._access_logged:  # by a client that left meanwhile: nobody would close the reader
            self._open_form()

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Read a large form at once, and refuse it where it goes wrong; a small one waits for its end."""
        if self._reader is None:
            self.body.append(chunk)
            return None
        return self._take(chunk, self._reader)

    def _open_form(self) -> FormReader:
        content_type = self.headers.get("Content-Type", "")
        self._reader = FormReader(content_type, self.spool, file=self.file_field, roomy=self.roomy)
        if self.caller.coding == "gzip":
            self._inflater = zlib.decompressobj(wbits=31)
        elif self.caller.coding != "identity":
            raise UnsupportedContentType("Content-Encoding must be gzip or identity")
        return self._reader

    def _take(self, chunk: bytes, reader: FormReader) -> Awaitable[None] | None:
        if self._inflater is not None:
            return self._inflate(chunk, reader, self._inflater)
        reader.feed(chunk)
        return self.spool.drain() if self.spool.full else None

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
            if self._inflated > self.max_body():
                raise RequestTooLarge()
            reader.feed(plain)
            if self.spool.full:
                await self.spool.drain()

    async def terms(self) -> Terms[R]:
        try:
            await self._read_form()
        except GatewayError as error:
            self._fault = error  # told by `read_body`, in the walk's own order
        return await super().terms()

    async def _read_form(self) -> None:
        reader = self._reader or self._open_form()
        body, self.body = self.body, []
        for chunk in body:
            pending = self._take(chunk, reader)
            if pending is not None:
                await pending
        if self._inflater is not None and not self._inflater.eof:
            raise BadRequest("The request body is truncated gzip")
        self.form = reader.finish()
        self._reader = None
        await self.spool.drain()
        self.upload = await Upload.of(self.form, self.spool)

    def read_body(self) -> bytes:
        fault, self._fault = self._fault, None
        try:
            if fault is not None:
                raise fault
            return b""
        finally:
            del fault  # its traceback holds this frame and this handler, and by it the upload

    def digest(self, body: bytes) -> str:
        assert self.form is not None
        return request_digest(self.path, self.form.digest.encode())

    def log_access(self) -> None:
        super().log_access()
        if self._access_logged:
            self.spool.close()
            if self._reader is not None:  # of a form that was cut off, or went wrong
                self._reader.close()
