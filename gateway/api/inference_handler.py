"""The one walk every model endpoint takes: authenticated, resolved, reserved, opened, relayed, settled exactly once.

An endpoint fills in what differs: how its body is decoded, what it may cost at worst, and how its answer is served,
for which `AnsweringHandler` has the parts. Sharp edges: a request refused before admission holds nothing; after
admission `settle` runs whatever happens; a client that leaves cancels the walk, and with it the upstream call, unless
an Idempotency-Key says that it will come back for the answer.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from gateway.amounts import format_amount
from gateway.api.json_body import BodyHandler
from gateway.api.quote import Terms
from gateway.api.request_metadata import JSON
from gateway.billing.call_record import CallRecord
from gateway.billing.usage import Usage
from gateway.catalog import Model
from gateway.errors import (
    BadRequest,
    BalanceExhausted,
    BudgetExceeded,
    Conflict,
    ContentFiltered,
    ContextLengthExceeded,
    GatewayError,
    InternalError,
    ModelNotFound,
    ModelNotPermitted,
)
from gateway.http_client.forwarded_headers import bind
from gateway.inference.call import Call
from gateway.inference.idempotency import Answer, Claim, check_name, request_digest
from gateway.ledger import Ask
from gateway.log import AccessLine, gateway_log
from gateway.schemas.request_fields import RequestFields

if TYPE_CHECKING:
    pass

R = TypeVar("R", bound=RequestFields)
T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

#: Seconds that an upstream is read on after its client left, under the disconnect policy "drain".
DRAIN_WITHIN = 60.0


class InferenceHandler(BodyHandler, Generic[R]):
    """The walk; see the module."""

    prompt_param: ClassVar[str] = "messages"  # the field that errors about the prompt are about
    filter_code: ClassVar[str] = "content_filter"  # of a prompt that the upstream's filter refused

    call: Call | None = None
    record: CallRecord | None = None
    claim: Claim | None = None  # on the caller's Idempotency-Key
    client_gone = False
    cut_by: GatewayError | None = None  # why the gateway itself ended a call that was running
    _walking = False
    _idempotent: tuple[str, str] | None = None  # the Idempotency-Key and the digest of the request

    # The walk --------------------------------------------------------------------------------------------------------

    async def post(self) -> None:
        """Walk once; whatever happens after admission, settle."""
        bind(self.caller.forwarded_headers)
        terms = await self.terms()
        if self._idempotent is not None and not await self._claim(self._idempotent, terms.model):
            return
        call = self.call = await (self.admit(terms) if self.claim is None else self._admit(terms))
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
            self.close_stream()
            self.settle(call)
            self._close_claim()
            self.log_access()

    async def terms(self) -> Terms[R]:
        """Decode, resolve and price; a refusal is only spoken to a caller whose key and permission still hold."""
        model: Model | None = None
        try:
            body = self.read_body()
            name = self.caller.idempotency_key
            if name is not None:
                self._idempotent = check_name(name), self.digest(body)
            request = self.decode(body)
            model = self.find_model(request)
            return self.price(request, model)
        except GatewayError as error:
            view = await self.confirm()
            if model is not None and not view.permits(model.name, model.groups):
                raise ModelNotPermitted() from error
            raise

    def digest(self, body: bytes) -> str:
        """What makes two requests with one Idempotency-Key the same."""
        return request_digest(self.path, body)

    def find_model(self, request: R) -> Model:
        """The model the request names."""
        model = self.gateway.catalog.find(request.model)  # type: ignore[attr-defined]
        if model is not None:
            return model
        if self.gateway.settings.server.unknown_model_status == 404:
            raise ModelNotFound(param="model")
        raise ModelNotPermitted()

    async def _claim(self, idempotent: tuple[str, str], model: Model) -> bool:
        """Claim the Idempotency-Key; False when the call was made before and its answer has been repeated."""
        assert self.key is not None
        name, digest = idempotent
        try:
            found = await self.gateway.idempotency.claim(
                self.key, name, digest=digest, request_id=self.request_id, model=model.name
            )
        except (BadRequest, Conflict):
            await self._permit(model)
            raise
        if isinstance(found, Claim):
            self.claim = found
            return True
        await self._permit(model)
        self._replay(found)
        return False

    async def _permit(self, model: Model) -> None:
        """What admission decides for a call that runs, for one that does not."""
        view = await self.confirm()
        if not view.permits(model.name, model.groups):
            raise ModelNotPermitted()

    def _replay(self, answer: Answer) -> None:
        head = answer.head
        self.answer_headers |= head.headers
        self.set_header("Idempotent-Replayed", "true")
        self.set_header("x-gateway-original-request", answer.request_id)
        if head.whole and not head.headers["Content-Type"].startswith("text/event-stream"):
            self.set_header("Content-Length", str(len(answer.body)))
        self.tell_time()
        self.outcome, self.status = "replayed", head.status
        self.exchange.write_head(head.status, self.answer_headers, answer.body)
        if head.whole:
            self.exchange.finish()
        else:
            self.exchange.abort()
        self.log_access()

    def _close_claim(self) -> None:
        if self.claim is not None:
            self.claim.close(self.answer_headers, charged=self.record is not None and self.record.cost > 0)

    async def _admit(self, terms: Terms[R]) -> Call:
        try:
            return await self.admit(terms)
        except BaseException:
            self._close_claim()  # whoever was refused may try again
            raise

    async def admit(self, terms: Terms[R]) -> Call:
        """Reserve the worst case: key, permission, limits and balance are decided in one atomic step."""
        assert self.key is not None
        asked = time.monotonic()
        try:
            hold = await self.gateway.ledger.admit(self._ask(terms))
        except (BalanceExhausted, BudgetExceeded):
            if terms.model.hold != "clamp":
                raise
            smaller = self.lower(terms, await self.gateway.ledger.spendable(self.key))
            if smaller is None:
                raise
            terms = smaller
            hold = await self.gateway.ledger.admit(self._ask(terms))
        metrics = self.gateway.metrics
        metrics.store_round_trip(time.monotonic() - asked)
        metrics.begun(self.endpoint)
        if hold.rates is not None:
            self.answer_headers.update(hold.rates.headers())
        self.gateway.running.add(self.request_id, self)
        return Call(
            self.request_id,
            endpoint=self.endpoint,
            key=self.key,
            model=terms.model,
            price=terms.price,
            hold=hold,
            prompt=terms.prompt,
            worst_case=terms.worst_case,
            ceiling=terms.ceiling,
            stream=self.wants_stream(terms.request),
            service_tier=terms.service_tier,
            started=self.started,
        )

    def _ask(self, terms: Terms[R]) -> Ask:
        assert self.key is not None
        model = terms.model
        return Ask(
            request_id=self.request_id,
            key=self.key,
            model=model.name,
            model_groups=model.groups,
            hold=terms.price.worst(terms.worst_case, service_tier=terms.service_tier),
            tokens=terms.tokens,
            price_version=terms.price.version,
        )

    def end(self, call: Call, error: GatewayError) -> None:
        """End the answer with `error`: as a status if nothing was sent yet, else inside what was begun."""
        if isinstance(error, ContextLengthExceeded | ContentFiltered):
            error.param = self.prompt_param  # a provider need not know which endpoint it serves
            if isinstance(error, ContentFiltered):
                error.code = self.filter_code
        call.outcome, call.status = error.code or "error", error.status
        self.outcome, self.detail = call.outcome, error.detail or ""
        if self.headers_sent():
            self.end_in_stream(error)
        else:
            self.send_error(error)

    # The end ---------------------------------------------------------------------------------------------------------

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
        self.gateway.metrics.ended(self.endpoint)
        self.record = self.gateway.settlement.settle(call, usage)

    def deliver(self, call: Call, body: bytes, *, media_type: str = JSON) -> None:
        """Settle, then answer with a whole body: who has an answer has been charged for it."""
        self.settle(call)
        assert self.record is not None
        if self.gateway.settings.server.cost_header or call.key.shows_cost:
            self.set_header("x-gateway-cost", format_amount(self.record.cost))
        self.answer_headers["Content-Type"] = media_type
        if self.claim is not None:
            self.claim.keep(body)
            # The settlement leaves in a later step of the loop, so the store has the answer before the charge.
            self.claim.complete(200, self.answer_headers)
        self.send_bytes(body, media_type=media_type)

    def on_connection_close(self) -> None:
        """The client left: stop the walk, which closes the upstream."""
        if self._walking and self.claim is not None and self.claim.keeps:
            return  # the answer is finished, kept and charged in full: a retry will ask for it
        self.client_gone = True
        if self._walking and self.task is not None:
            if self.call is not None and self.call.model.disconnect == "drain":
                # The operator wants the upstream's own count: read on to it, but not for ever.
                asyncio.get_running_loop().call_later(DRAIN_WITHIN, self.task.cancel)
            else:
                self.task.cancel()
        elif self.task is None or self.task.done():
            super().on_connection_close()  # else the walk finds out by itself, and is counted once

    def told_to_end(self) -> bool:
        """Whether the walk was cancelled, even where a provider swallowed it."""
        return self.task is not None and self.task.cancelling() > 0

    def cut(self, error: GatewayError) -> None:
        """End a running call from outside: the upstream is closed, the client is told, the delivered is billed."""
        if self._walking and self.task is not None and self.cut_by is None:
            self.cut_by = error
            self.task.cancel()

    def cost_so_far(self) -> int:
        """What the call has cost up to now, in nano units; 0 before anything was delivered."""
        call = self.call
        usage = self.usage(call) if call is not None else None
        return call.cost(usage) if call is not None and usage is not None else 0

    def log_access(self) -> None:
        # An answer may be finished before its call is settled; the access line wants both.
        if self.call is None or self.call.settled:
            super().log_access()

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

    def lower(self, terms: Terms[R], amount: int) -> Terms[R] | None:
        """Smaller terms that `amount` pays for, under the hold policy "clamp"; None when there are none."""
        return None

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

    def close_stream(self) -> None:
        """The walk is over: nothing more is sent."""

    def usage(self, call: Call) -> Usage | None:
        """What the call used so far; None when nothing is owed."""
        raise InternalError()
