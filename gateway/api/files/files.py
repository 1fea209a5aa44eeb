"""`/v1/files`: uploads, lists, content and deletion of files; a file belongs to the account of its key.

An upload is read like one of audio: into a spool, within the budgets of the worker and the account. Then it is copied
into the storage of files, and its record is written last. Sharp edge: no handler reads or sends more than a piece at a
time.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Mapping

from tornado.iostream import StreamClosedError

from gateway.api.files.queries import MOST, list_document, read_query
from gateway.api.handler import KeyedHandler
from gateway.api.multipart_body import MultipartBody
from gateway.config.settings import FileSettings
from gateway.config.values import duration
from gateway.errors import GatewayError, InvalidValue, MissingParameter, NotFound, RequestTooLarge, UnknownURL
from gateway.files.chosen import chosen_storage
from gateway.files.records import FileRecords, StoredFile, new_file_id
from gateway.files.repeats import NO_REPEAT, Repeat
from gateway.files.storage import FileContent
from gateway.http_server.exchange import Exchange
from gateway.inference.idempotency import check_name
from gateway.inference.services import Services
from gateway.ledger.api_key import ApiKey
from gateway.uploads.form_kind import STORED_FORM
from gateway.uploads.stored_upload import StoredUpload
from gateway.uploads.upload import UploadedForm

BATCH = "batch"
REST_OF_FORM = 65_536  # bytes that a form may have beside its file
LEAST_LIFE = 3_600  # seconds, as OpenAI has it
REPLAYED = "Idempotent-Replayed"
OFF = "Files and batches are not served here"
ANCHOR, SECONDS = "expires_after[anchor]", "expires_after[seconds]"


class FileHandler(KeyedHandler):
    """What the handlers of files and batches share: whether they are served, and where files are."""

    endpoint_name = "files"

    def __init__(self, services: Services, exchange: Exchange, *, path: str, argument: str = "") -> None:
        super().__init__(services, exchange, path=path, argument=argument)
        self.records = FileRecords(services.store)
        self.storage = chosen_storage(services.settings)
        self.query = exchange.head.start_line.path.partition("?")[2]


async def admitted(handler: KeyedHandler) -> ApiKey:
    """The key of a request, confirmed; NotFound where files are not served."""
    key = (await handler.confirm()).key
    if not handler.services.settings.batches.enabled:
        raise NotFound(OFF)
    return key


def idempotency_key(handler: KeyedHandler) -> str | None:
    """The Idempotency-Key of a request; InvalidValue for one that is not allowed."""
    name = handler.metadata.idempotency_key
    return None if name is None else check_name(name)


class FilesHandler(FileHandler):
    """`/v1/files`."""

    body: MultipartBody | None = None
    storing = False

    def on_authenticated(self) -> Awaitable[None] | None:
        """Check the length of the form; confirm the key before a large one is read."""
        settings = self.services.settings
        if self.method != "POST" or not settings.batches.enabled:
            return None
        most = settings.files.max_file + REST_OF_FORM
        self.body = MultipartBody(self.services.bodies, kind=STORED_FORM, max_bytes=most)
        return self.body.begin(self)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass bytes of the form to its reader."""
        return self.body.feed(chunk) if self.body is not None else None

    async def get(self) -> None:
        key = await admitted(self)
        query = read_query(
            self.query, known=("after", "limit", "order", "purpose"), usual=MOST["files"], most=MOST["files"]
        )
        files, has_more = await self.records.page(
            key.account,
            user=key.user,
            purpose=query.purpose,
            after=query.after,
            limit=query.limit,
            newest_first=query.newest_first,
        )
        self.send_json(list_document([file.document() for file in files], has_more=has_more))

    async def post(self) -> None:
        key = await admitted(self)
        body, name = self.body, idempotency_key(self)
        if body is None:  # a reload has switched files on meanwhile
            raise NotFound(OFF)
        self.storing = True
        try:
            await body.complete()
            form = body.take()
            upload: StoredUpload = form.upload
            file = _file(form, upload, self.services.settings.files, place=await self.storage.place(), user=key.user)
            repeat = Repeat.of(name, key.user, body.digest(self.path)) if name is not None else NO_REPEAT
            stored = await _store(self, key.account, file, upload, repeat)
        finally:
            self.storing = False
            body.close()
        if stored != file.id:
            file = await self.records.find(key.account, stored, user=key.user)
            self.reply.headers[REPLAYED] = "true"
        self.send_json(file.document())

    def on_connection_close(self) -> None:
        """The client disconnected: what it has sent whole is stored, as if only the answer were lost."""
        if not self.storing:
            super().on_connection_close()

    def log_access(self) -> None:
        super().log_access()
        if self.body is not None and not self.storing:
            self.body.close()


class StoredFileHandler(FileHandler):
    """`/v1/files/{id}` and `/v1/files/{id}/content`."""

    async def get(self) -> None:
        key = await admitted(self)
        file_id, _, rest = self.argument.partition("/")
        file = await self.records.find(key.account, file_id, user=key.user)
        if rest == "content":
            await _send_content(self, file)
        else:
            _only_file(self, rest)
            self.send_json(file.document())

    async def delete(self) -> None:
        key = await admitted(self)
        file_id, _, rest = self.argument.partition("/")
        file = await self.records.find(key.account, file_id, user=key.user)
        _only_file(self, rest)
        if file.place == await self.storage.place():
            await self.storage.delete(file.id)
        await self.records.remove(key.account, file)
        self.send_json({"id": file.id, "object": "file", "deleted": True})


def _file(form: UploadedForm, upload: StoredUpload, settings: FileSettings, *, place: str, user: str) -> StoredFile:
    """The record of an uploaded file; BadRequest or RequestTooLarge."""
    texts = dict(form.form.texts)
    purpose = texts.get("purpose")
    if purpose is None:
        raise MissingParameter("Missing required parameter: 'purpose'.", param="purpose")
    if purpose != BATCH:
        raise InvalidValue(f"Invalid 'purpose': '{purpose[:64]}' is not served; expected 'batch'.", param="purpose")
    if upload.size > settings.max_file:
        raise RequestTooLarge()
    if not upload.size:
        raise InvalidValue("Invalid 'file': it is empty.", param="file")
    longest = int(duration(settings.keep).total_seconds())
    life, now = _life(texts, longest) or longest, int(time.time())
    return StoredFile(new_file_id(), upload.size, now, now + life, upload.filename, BATCH, place, user)


async def _store(handler: FileHandler, account: str, file: StoredFile, upload: StoredUpload, repeat: Repeat) -> str:
    """Store the content, and then the record; the id of the file. If that fails, nothing is left.

    The id is another one if the same request has made a file before.
    """
    settings = handler.services.settings.files
    await handler.records.announce(account, file.id, place=file.place, expires_at=file.expires_at)
    try:
        await handler.storage.save(file.id, upload.chunks())
        stored = await handler.records.add(
            account,
            file,
            most_files=settings.max_account_files,
            most_bytes=settings.max_account,
            repeat=repeat,
        )
    except GatewayError:
        await handler.storage.delete(file.id)
        raise
    if stored != file.id:
        await handler.storage.delete(file.id)
        await handler.records.forget(file.place, account, file.id)
    return stored


def _only_file(handler: FileHandler, rest: str) -> None:
    """UnknownURL for a path below that of a file."""
    if rest:
        raise UnknownURL(f"Unknown request URL: {handler.method} {handler.path[:200]}.")


async def _send_content(handler: FileHandler, file: StoredFile) -> None:
    storage = handler.storage
    content = await storage.open(file.id) if file.place == await storage.place() else None
    if content is None:
        raise NotFound("The content of this file is not on this machine")
    try:
        await _send(handler, file, content)
    except StreamClosedError:
        pass  # the client has left
    finally:
        await content.close()
        handler.log_access()


async def _send(handler: FileHandler, file: StoredFile, content: FileContent) -> None:
    headers, exchange = handler.reply.headers, handler.exchange
    headers["Content-Type"] = "application/octet-stream"
    headers["Content-Length"] = str(content.size)
    headers["Content-Disposition"] = f'attachment; filename="{_plain(file.filename)}"'
    await handler.reply.begin(200, b"")
    sent = 0
    while sent < content.size and handler.method != "HEAD" and (piece := await content.read()):
        sent += len(piece)
        await exchange.write(piece)
    exchange.finish()


def _life(texts: Mapping[str, str], longest: int) -> int | None:
    """Seconds that `expires_after` asks for; None without it. InvalidValue."""
    if ANCHOR not in texts and SECONDS not in texts:
        return None
    if texts.get(ANCHOR) != "created_at":
        raise InvalidValue(f"Invalid '{ANCHOR}': expected 'created_at'.", param="expires_after.anchor")
    text = texts.get(SECONDS, "")
    is_number = text.isascii() and text.isdecimal() and len(text) < 12
    if not is_number or not LEAST_LIFE <= int(text) <= longest:
        raise InvalidValue(
            f"Invalid '{SECONDS}': expected a number from {LEAST_LIFE} to {longest}.", param="expires_after.seconds"
        )
    return int(text)


def _plain(filename: str) -> str:
    """A file name for a header: ASCII, without quotes."""
    return "".join(one if one.isascii() and one not in '"\\' else "_" for one in filename)
