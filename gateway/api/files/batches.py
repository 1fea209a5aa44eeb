"""`/v1/batches`: a batch is made and cancelled here; the runner's process runs it (`gateway.runtime.batches`)."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from gateway.amounts import parse_amount
from gateway.api.files.files import BATCH, LEAST_LIFE, REPLAYED, FileHandler, admitted, idempotency_key
from gateway.api.files.queries import MOST, list_document, read_query
from gateway.api.json_body import JsonBody
from gateway.batches.batch import WINDOW, Batch, new_batch_id
from gateway.batches.records import BatchRecords
from gateway.batches.work import work_place
from gateway.config.values import duration
from gateway.errors import InvalidValue, UnknownURL
from gateway.files.repeats import NO_REPEAT, Repeat
from gateway.http_server.exchange import Exchange
from gateway.inference.services import Services
from gateway.ledger.api_key import ApiKey
from gateway.schemas.validation import BodyDecoder

MAX_BODY = 65_536  # bytes
USUAL = 20  # batches of a page
CANCEL = "cancel"

Endpoint = Literal["/v1/chat/completions", "/v1/embeddings", "/v1/completions", "/v1/responses", "/v1/messages"]
Value = Annotated[str, Meta(max_length=512)]
Metadata = Annotated[dict[Annotated[str, Meta(max_length=64)], Value], Meta(max_length=16)]


class _Expiry(Struct):
    anchor: Literal["created_at"]
    seconds: Annotated[int, Meta(ge=LEAST_LIFE, le=2_592_000)]


class _NewBatch(Struct, kw_only=True):
    """The body of a new batch."""

    input_file_id: Annotated[str, Meta(max_length=64)]
    endpoint: Endpoint
    completion_window: Literal["24h"]
    metadata: Metadata | None = None
    output_expires_after: _Expiry | None = None
    max_cost: str | int | float | None = None


_body = BodyDecoder(_NewBatch)


class BatchesHandler(FileHandler):
    """`/v1/batches`."""

    endpoint_name = "batches"
    body: JsonBody | None = None

    def __init__(self, services: Services, exchange: Exchange, *, path: str, argument: str = "") -> None:
        super().__init__(services, exchange, path=path, argument=argument)
        self.batches = BatchRecords(services.store)

    def on_authenticated(self) -> Awaitable[None] | None:
        """Check the length of the body."""
        if self.method != "POST" or self.argument:
            return None
        self.body = JsonBody(MAX_BODY, self.services.bodies)
        return self.body.begin(self)

    def data_received(self, chunk: bytes) -> Awaitable[None] | None:
        """Pass bytes of the body to its reader."""
        if self.body is not None:
            self.body.feed(chunk)
        return None

    async def get(self) -> None:
        key = await admitted(self)
        query = read_query(self.query, known=("after", "limit"), usual=USUAL, most=MOST["batches"])
        found, has_more = await self.batches.page(key.account, user=key.user, after=query.after, limit=query.limit)
        self.send_json(list_document([batch.document(mark) for batch, mark in found], has_more=has_more))

    async def post(self) -> None:
        key, body, settings = await admitted(self), self.body, self.services.settings
        assert body is not None
        pending = body.complete()
        if pending is not None:
            await pending
        asked, fields = _body.decode(body.take())
        name = idempotency_key(self)
        repeat = Repeat.of(name, key.user, body.digest(self.path)) if name is not None else NO_REPEAT
        # A repetition is answered also when the input is deleted meanwhile.
        made = await self.batches.made_before(key.account, repeat) if name is not None else ""
        if not made:
            batch = await _new_batch(self, key, asked, _max_cost(fields.get("max_cost")))
            made = await self.batches.add(batch, most_open=settings.batches.max_open, repeat=repeat)
            if made == batch.id:
                self.send_json(batch.document(None))
                return
        self.reply.headers[REPLAYED] = "true"
        before, mark = await self.batches.find(key.account, made, user=key.user)
        self.send_json(before.document(mark))

    def log_access(self) -> None:
        super().log_access()
        if self.body is not None:
            self.body.close()


class BatchHandler(BatchesHandler):
    """`/v1/batches/{id}` and `/v1/batches/{id}/cancel`."""

    async def get(self) -> None:
        key = await admitted(self)
        batch, mark = await self.batches.find(key.account, self.argument, user=key.user)
        self.send_json(batch.document(mark))

    async def post(self) -> None:
        key = await admitted(self)
        batch_id, _, rest = self.argument.partition("/")
        if rest != CANCEL:
            raise UnknownURL(f"Unknown request URL: {self.method} {self.path[:200]}.")
        await self.batches.find(key.account, batch_id, user=key.user)
        await self.batches.cancel(key.account, batch_id)
        batch, mark = await self.batches.find(key.account, batch_id, user=key.user)
        self.send_json(batch.document(mark))


def _longest(keep: str) -> int:
    return int(duration(keep).total_seconds())


async def _new_batch(handler: FileHandler, key: ApiKey, asked: _NewBatch, max_cost: int | None) -> Batch:
    settings = handler.services.settings
    file = await handler.records.find(key.account, asked.input_file_id, user=key.user)
    if file.purpose != BATCH:
        raise InvalidValue("Invalid 'input_file_id': the file is no input of batches.", param="input_file_id")
    if file.place != await handler.storage.place():
        raise InvalidValue("Invalid 'input_file_id': the file is on another machine.", param="input_file_id")
    now, expiry = int(time.time()), asked.output_expires_after
    return Batch(
        id=new_batch_id(),
        account=key.account,
        key=key.id,
        user=key.user,
        shows_cost=key.shows_cost,
        address=handler.client_address(),
        place=await work_place(settings),
        endpoint=asked.endpoint,
        input_file_id=file.id,
        created_at=now,
        expires_at=now + WINDOW,
        metadata=asked.metadata,
        max_cost=max_cost,
        output_expires_after=None if expiry is None else min(expiry.seconds, _longest(settings.files.keep)),
    )


def _max_cost(raw: Any) -> int | None:
    """An amount as sent, a number or a text, in nano-units; InvalidValue."""
    text = bytes(raw).decode().strip('"') if raw is not None else "null"
    if text == "null":
        return None
    try:
        amount = parse_amount(text)
    except ValueError:
        amount = 0
    if amount <= 0:
        raise InvalidValue("Invalid 'max_cost': expected a positive amount such as 2.50", param="max_cost")
    return amount
