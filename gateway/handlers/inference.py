"""The one walk every model endpoint takes: authenticated, resolved, reserved, opened, relayed, settled exactly once.

An endpoint subclasses `InferenceHandler` and fills in what differs: how its body is read, what it may cost at worst,
and how its answer is served. Sharp edges: a request refused before admission holds nothing; after admission `settle`
runs whatever happens; a client that leaves cancels the walk, and with it the upstream call.
"""

from __future__ import annotations

import asyncio
import time
import zlib
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Generic, TypeVar

from gateway.call import Call
from gateway.catalog import Model
from gateway.errors import (
    GatewayError,
    InternalError,
    InvalidJSON,
    ModelNotFound,
    ModelNotPermitted,
    RequestTooLarge,
    UnsupportedContentType,
)
from gateway.handlers.base import JSON, KeyedHandler
from gateway.ledger import Ask
from gateway.log import AccessLine, gateway_log
from gateway.money import format_amount
from gateway.receipt import CallRecord
from gateway.usage import Usage

if TYPE_CHECKING:
    from gateway.server import Gateway
    from gateway.transport.http_exchange import Exchange

R = TypeVar("R")

#: Bodies up to this size are read before the store was asked: admission then confirms the key in the same round trip.
SMALL_BODY = 65_536


#: Seconds that an upstream is read on after its client left, under the disconnect policy "drain".
DRAIN_WITHIN = 60.0


class Terms(Generic[R]):
    """What a decoded request means for money."""

    def __init__(self, request: R, model: Model, prompt: Usage, worst_case: Usage, ceiling: tuple[int, int]) -> None:
        self.request = request
        self.model = model
        self.prompt = prompt  # the prompt's estimate alone
        self.worst_case = worst_case  # what is held
        self.ceiling = ceiling  # tokens in and out beyond which a count is impossible


class InferenceHandler(KeyedHandler, Generic[R]):
    """The walk; see the module."""

    def __init__(self, gateway: Gateway, exchange: Exchange, *, path: str, argument: str = "") -> None:
        super().__init__(gateway, exchange, path=path, argument=argument)
        self.body: list[bytes] = []
        self.call: Call | None = None
        self.record: CallRecord | None = None
        self.client_gone = False
        self.cut_by: GatewayError | None = None  # why the gateway itself ended a call that was running
        self._walking = False

    # Reading ---------------------------------------------------------------------------------------------------------

    def prepared(self) -> Awaitable[None] | None:
        """Refuse what its headers already condemn; confirm the key before a large body is read."""
        if self.method != "POST":
            return None
        self.exchange.set_max_body_size(self.max_body())
        length = self.headers.get("Content-Length")
        if length is not None and int(length) <= SMALL_BODY:
            return None
        return self._confirm_before_body(int(length or 0))

    async def _confirm_before_body(self, length: int) -> None:
        await self.confirm()
        if length > self.max_body():
            raise RequestTooLarge()

    def max_body(self) -> int:
        """The largest body this endpoint takes, in bytes."""
        return self.gateway.settings.server.max_json_body

    def data_received(self, chunk: bytes) -> None:
        """Collect the body; the transport enforces its size."""
        self.body.append(chunk)

    def read_body(self) -> bytes:
        """The whole body, decompressed."""
        headers = self.headers
        media = headers.get("Content-Type")
        if media is not None and media.partition(";")[0].strip().lower() != JSON:
            raise UnsupportedContentType("Content-Type must be application/json")
        body = self.body[0] if len(self.body) == 1 else b"".join(self.body)
        self.body = []
        encoding = headers.get("Content-Encoding", "identity").strip().lower()
        if encoding == "identity":
            return body
        if encoding != "gzip":
            raise UnsupportedContentType("Content-Encoding must be gzip or identity")
        return _gunzip(body, self.max_body())

    # The walk --------------------------------------------------------------------------------------------------------

    async def post(self) -> None:
        """Walk once; whatever happens after admission, settle."""
        terms = await self.terms()
        call = self.call = await self.admit(terms)
        self._walking = True
        try:
            if not self.client_gone:
                await self.serve(call, terms.request)
        except asyncio.CancelledError:
            if self.cut_by is not None:
                self.end(call, self.cut_by)
            elif not self.client_gone:
                raise
        except GatewayError as error:
            self.end(call, error)
        except Exception as error:
            # The handler's edge: a bug must still end the answer honestly and settle what was delivered.
            gateway_log.error("%s failed in provider %s", self.request_id, call.provider, exc_info=error)
            self.end(call, InternalError())
        finally:
            self._walking = False
            self.settle(call)
            self.ended()

    async def terms(self) -> Terms[R]:
        """Decode, resolve and price; a refusal is only spoken to a caller whose key and permission still hold."""
        model: Model | None = None
        try:
            request = self.decode(self.read_body())
            model = self.find_model(request)
            return self.price(request, model)
        except GatewayError as error:
            view = await self.confirm()
            if model is not None and not view.permits(model.name, model.groups):
                raise ModelNotPermitted() from error
            raise

    def find_model(self, request: R) -> Model:
        """The model the request names."""
        model = self.gateway.catalog.find(request.model)  # type: ignore[attr-defined]
        if model is not None:
            return model
        if self.gateway.settings.server.unknown_model_status == 404:
            raise ModelNotFound(param="model")
        raise ModelNotPermitted()

    async def admit(self, terms: Terms[R]) -> Call:
        """Reserve the worst case: key, permission, limits and balance are decided in one atomic step."""
        assert self.key is not None
        model, worst = terms.model, terms.worst_case
        asked = time.monotonic()
        hold = await self.gateway.ledger.admit(
            Ask(
                rid=self.request_id,
                key=self.key,
                model=model.name,
                model_groups=model.groups,
                hold=model.price.cost(worst),
                tokens=worst.tokens_in + worst.tokens_out,
            )
        )
        metrics = self.gateway.metrics
        metrics.store_round_trip(time.monotonic() - asked)
        metrics.add("gateway_in_flight", (self.endpoint,), 1.0)
        if hold.rates is not None:
            for name, value in hold.rates.headers().items():
                self.set_header(name, value)
        self.gateway.running.add(self.request_id, self)
        return Call(
            self.request_id,
            endpoint=self.endpoint,
            key=self.key,
            model=model,
            hold=hold,
            prompt=terms.prompt,
            worst_case=worst,
            ceiling=terms.ceiling,
            stream=self.wants_stream(terms.request),
            started=self.started,
        )

    def end(self, call: Call, error: GatewayError) -> None:
        """End the answer with `error`: as a status if nothing was sent yet, else inside what was begun."""
        call.outcome, call.status = error.code or "error", error.status
        self.outcome, self.detail = call.outcome, error.detail or ""
        if self.headers_sent():
            self.end_in_stream(error)
        else:
            self.refuse(error)

    def settle(self, call: Call) -> None:
        """Charge what was used: from the walk's finally, or earlier once the amount is known."""
        if call.settled:
            return
        if self.client_gone:
            call.outcome, call.status = "client_closed", 499
            self.outcome = call.outcome
        try:
            usage = None if self.client_gone and call.model.disconnect == "void" else self.usage(call)
        except Exception as error:
            # In the settle path a bug in counting must not lose the bill: the prompt's estimate is charged instead.
            gateway_log.error("%s: usage failed", self.request_id, exc_info=error)
            usage = call.prompt
        self.gateway.running.discard(self.request_id)
        self.gateway.metrics.add("gateway_in_flight", (self.endpoint,), -1.0)
        self.record = self.gateway.settlement.settle(call, usage)

    def on_connection_close(self) -> None:
        """The client left: stop the walk, which closes the upstream."""
        self.client_gone = True
        if self._walking and self.task is not None:
            if self.call is not None and self.call.model.disconnect == "drain":
                # The operator wants the upstream's own count: read on to it, but not for ever.
                asyncio.get_running_loop().call_later(DRAIN_WITHIN, self.task.cancel)
            else:
                self.task.cancel()
        elif self.call is None:
            super().on_connection_close()

    def cut(self, error: GatewayError) -> None:
        """End a running call from outside: the upstream is closed, the client is told, the delivered is billed."""
        if self._walking and self.task is not None and self.cut_by is None:
            self.cut_by = error
            self.task.cancel()

    def cost_so_far(self) -> int:
        """What the call has cost up to now, in nano units; 0 before anything was delivered."""
        call = self.call
        usage = self.usage(call) if call is not None else None
        return call.model.price.cost(usage) if call is not None and usage is not None else 0

    def ended(self) -> None:
        # An answer may be finished before its call is settled; the access line wants both.
        if self.call is None or self.call.settled:
            super().ended()

    # What is written about it ----------------------------------------------------------------------------------------

    def counted(self) -> bool:
        return self.record is not None

    def access_line(self) -> AccessLine:
        line = super().access_line()
        record = self.record
        if record is not None:
            line.status = record.status
            line.model, line.provider, line.attempts = record.model, record.provider, record.attempts
            line.tokens_in, line.tokens_out = record.usage.tokens_in, record.usage.tokens_out
            line.cost, line.stream = format_amount(record.cost), record.stream
        return line

    # What an endpoint fills in ---------------------------------------------------------------------------------------

    def decode(self, body: bytes) -> R:
        """The validated request; raises the BadRequest branch only."""
        raise InternalError()

    def price(self, request: R, model: Model) -> Terms[R]:
        """Check the request against the model, and estimate it."""
        raise InternalError()

    def wants_stream(self, request: R) -> bool:
        """Whether the answer is a stream."""
        return False

    async def serve(self, call: Call, request: R) -> None:
        """Open the call and relay its answer."""
        raise InternalError()

    def headers_sent(self) -> bool:
        """Whether the status has left, so that an error can no longer be one."""
        return False

    def end_in_stream(self, error: GatewayError) -> None:
        """Tell a client that already has a status 200."""
        raise InternalError()

    def usage(self, call: Call) -> Usage | None:
        """What the call used so far; None when nothing is owed."""
        raise InternalError()


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
