"""One line of a batch as one call: the handler, the pipeline and the endpoint are those of a request of HTTP.

Its answer goes to a `LineExchange` in place of a connection. What a settled call has cost is known in the step of the
event loop in which it is settled; `on_settled` is called in that step, before the settlement is in the journal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import Struct
from tornado.httputil import RequestStartLine

from gateway.api.inference_handler import InferenceHandler
from gateway.api.json_body import SMALL_BODY, JsonBody
from gateway.api.routes import HandlerRoute, find_route
from gateway.batches.batch import Batch
from gateway.batches.lines import Line
from gateway.errors import BatchBudgetExceeded, ConcurrencyLimited, GatewayError, InternalError
from gateway.http_server.exchange import Exchange
from gateway.http_server.head import RequestHead, RequestHeaders
from gateway.http_server.peer import TlsPeer
from gateway.http_server.reply import ResponseWriter
from gateway.inference.call import Call
from gateway.inference.call_stages import CallRequest
from gateway.inference.endpoint import Endpoint, Received
from gateway.inference.pipeline import Pipeline
from gateway.inference.services import Services
from gateway.ledger.api_key import ApiKey


class Attempt(Struct):
    """One call of a line and its answer."""

    request_id: str
    status: int = 0
    body: bytes = b""
    error: GatewayError | None = None
    call: Call | None = None  # None: it was refused before it was admitted

    @property
    def cost(self) -> int:
        """What the call owes, in nano-units."""
        return self.call.record.cost if self.call is not None and self.call.record is not None else 0


class Budget:
    """`max_cost` of a batch, and how much of it its finished and its running calls have."""

    def __init__(self, most: int | None, spent: int) -> None:
        self.most = most  # nano-units; None: no limit
        self.spent = spent
        self._held: dict[int, int] = {}  # by line

    def reserve(self, number: int, amount: int) -> None:
        """Hold `amount` for a line; BatchBudgetExceeded, or ConcurrencyLimited if other lines hold the rest."""
        self._held.pop(number, None)
        if self.most is not None:
            if self.spent + amount > self.most:
                raise BatchBudgetExceeded()
            if self.spent + self.held + amount > self.most:
                raise ConcurrencyLimited("Other lines hold the rest of the batch's max_cost")
        self._held[number] = amount

    @property
    def held(self) -> int:
        """What the lines that run hold, in nano-units."""
        return sum(self._held.values())

    def release(self, number: int) -> None:
        """The call of a line has ended."""
        self._held.pop(number, None)


class LineExchange(Exchange):
    """The answer of one call, in memory. `ended` is done when it is whole."""

    __slots__ = ("body", "ended", "status")

    def __init__(self, head: RequestHead, address: str, loop: asyncio.AbstractEventLoop) -> None:
        self.head, self.context, self.loop = head, TlsPeer(address), loop
        self.no_keep_alive = self.headers_written = self.finished = False
        self.max_body_bytes = 0
        self.body_timeout = self.refusal = self._close_callback = self._connection = None
        self.ended: asyncio.Future[None] = loop.create_future()
        self.status, self.body = 0, b""

    def answer(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        self.status, self.body = code, body
        self.finish()

    def write_head(self, code: int, headers: Mapping[str, str], chunk: bytes | None = None) -> asyncio.Future[None]:
        self.headers_written, self.status = True, code
        return self.write(chunk or b"")

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        self.body += chunk
        written: asyncio.Future[None] = self.loop.create_future()
        written.set_result(None)
        return written

    def chunk_writer(self) -> None:
        return None

    def finish(self) -> None:
        self.finished = True
        self._close_callback = self.refusal = None
        if not self.ended.done():
            self.ended.set_result(None)

    def abort(self) -> None:
        """An answer that is cut is none."""
        self.status = InternalError.status
        self.finish()

    def reset(self) -> None:
        self.abort()


class LineReply(ResponseWriter):
    """Keeps the error that ended the call."""

    __slots__ = ("error",)
    error: GatewayError | None

    def send_error(self, error: GatewayError) -> None:
        self.error = error
        super().send_error(error)


class LineHandler(InferenceHandler):
    """The handler of a line: its key is known by its id. That it is valid is checked by the admission of each call."""

    line_key: ApiKey

    def on_head(self) -> Awaitable[None] | None:
        return self._known(self.line_key)


class LineCalls:
    """Makes the calls of one batch. `on_settled` gets the line and its attempt; see the module."""

    def __init__(
        self,
        services: Services,
        pipeline: Pipeline,
        batch: Batch,
        budget: Budget,
        on_settled: Callable[[Line, Attempt], None],
    ) -> None:
        self.batch_id = batch.id
        self._services = services
        self._pipeline = pipeline
        self._batch = batch
        self._budget = budget
        self._on_settled = on_settled
        self._route: HandlerRoute = find_route(batch.endpoint)[0]
        self._key = ApiKey(batch.account, batch.key, batch.shows_cost, batch.user)
        self._start_line = RequestStartLine("POST", batch.endpoint, "HTTP/1.1")
        self._tasks: set[asyncio.Task[None]] = set()  # calls whose providers do not end go on without their line

    async def run(self, line: Line) -> Attempt:
        """Make one call of a line."""
        digits = str(len(line.body)).encode()
        client_id = f"{self._batch.id} {line.number}".encode()
        headers = RequestHeaders(
            {"Content-Type": [b"application/json"], "Content-Length": [digits], "X-Client-Request-Id": [client_id]}
        )
        head = RequestHead(self._start_line, headers, len(line.body), False, True, False)
        exchange = LineExchange(head, self._batch.address, asyncio.get_running_loop())
        stage = _LineStage(self, line, exchange)
        handler = self._handler(exchange, stage)
        try:
            await self._serve(handler, headers, line.body)
            await self._ended(handler, exchange)
        finally:
            self._budget.release(line.number)
        return stage.attempt_of(handler)

    def _handler(self, exchange: LineExchange, stage: _LineStage) -> LineHandler:
        services, path, endpoint = self._services, self._batch.endpoint, self._route.endpoint
        assert endpoint is not None
        body = JsonBody(services.settings.server.limits.max_json_body, services.bodies)
        handler = LineHandler(services, exchange, path=path, pipeline=stage, endpoint=endpoint, body=body)
        handler.line_key = self._key
        reply = handler.reply = LineReply(exchange, handler.request_id)
        reply.error = None
        if self._route.errors is not None:
            reply.error_form = self._route.errors
        return handler

    async def _serve(self, handler: LineHandler, headers: RequestHeaders, body: bytes) -> None:
        """What the transport does with a request of HTTP."""
        pending = handler.headers_received(self._start_line, headers)
        if pending is not None:
            await pending
        try:
            for part in (body[:SMALL_BODY], body[SMALL_BODY:]):
                if part and not handler.reply.status:
                    handler.data_received(part)
        except Exception as error:
            # The handler's edge, which is in the transport for a request of HTTP.
            handler.send_error(error)
        handler.finish()

    async def _ended(self, handler: LineHandler, exchange: LineExchange) -> None:
        """Wait for the answer; a task that ends without one is a defect, and must not stop the batch."""
        task = handler.task
        if task is None:
            return
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        await asyncio.wait({task, exchange.ended}, return_when=asyncio.FIRST_COMPLETED)

    async def through(self, stage: _LineStage, asked: CallRequest, endpoint: Endpoint[Any], received: Received) -> None:
        """Run the pipeline, and tell what the settled call was, in the step in which the pipeline returns."""
        asked.batch = stage
        await self._pipeline.run(asked, endpoint, received)
        call = asked.call
        if call is not None and not call.abandoned:
            self._on_settled(stage.line, stage.attempt(call))

    def reserve(self, line: Line, amount: int) -> None:
        """See `Budget.reserve`."""
        self._budget.reserve(line.number, amount)


class _LineStage:
    """Stands for the pipeline of one call, and is what the pipeline knows of its batch."""

    def __init__(self, calls: LineCalls, line: Line, exchange: LineExchange) -> None:
        self.line = line
        self.id = calls.batch_id
        self._calls = calls
        self._exchange = exchange

    async def run(self, asked: CallRequest, endpoint: Endpoint[Any], received: Received) -> None:
        await self._calls.through(self, asked, endpoint, received)

    def reserve(self, amount: int) -> None:
        self._calls.reserve(self.line, amount)

    def attempt(self, call: Call) -> Attempt:
        """A call that was settled; its answer was sent in the same step."""
        reply = call.reply
        assert isinstance(reply, LineReply)
        return Attempt(call.request_id, self._exchange.status, self._exchange.body, reply.error, call)

    def attempt_of(self, handler: LineHandler) -> Attempt:
        """The attempt whose answer is whole."""
        reply, call = handler.reply, handler.asked.call if handler.asked is not None else None
        assert isinstance(reply, LineReply)
        status = self._exchange.status or InternalError.status
        body = self._exchange.body or InternalError().body()
        return Attempt(handler.request_id, status, body, reply.error, call)
