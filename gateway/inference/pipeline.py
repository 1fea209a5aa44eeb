"""The one path of every model call: quoted, held, dispatched, encoded, settled exactly once.

An `Endpoint` adds what differs between resources; holding, dispatching, settling, leaving callers, cuts, drain and
idempotency stand here once. Sharp edges: a request refused before admission holds nothing; after admission `_settle`
runs whatever happens; a client that leaves cancels the call, and with it the upstream call, unless an Idempotency-Key
says that it will come back for the answer.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from gateway.amounts import format_amount
from gateway.billing.quote import Quote
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
    NoHealthyUpstream,
    UnsupportedParameter,
)
from gateway.inference.call import Call
from gateway.inference.endpoint import Body, Endpoint
from gateway.inference.event_stream import close_stream, relay
from gateway.inference.idempotency import Answer, Claim, check_name
from gateway.inference.services import Services
from gateway.ledger import Ask
from gateway.log import gateway_log
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted, adapt


class Pipeline:
    """The stages, over one worker's services."""

    __slots__ = ("_services",)

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(
        self, call: Call, endpoint: Endpoint[Any], body: Body, *, path: str, idempotency_key: str | None
    ) -> None:
        """Answer one request; raises what it is refused with before anything was held."""
        digest = await self._quote(call, endpoint, body, path=path, idempotency_key=idempotency_key)
        if idempotency_key is not None and not await self._claim(call, idempotency_key, digest):
            return
        await self._hold(call, endpoint)
        call.running = True
        try:
            if not call.client_gone:
                await (self._stream(call, endpoint) if endpoint.is_relayed(call) else self._answer(call, endpoint))
        except asyncio.CancelledError:
            if call.cut_by is not None:
                self._fail(call, endpoint, call.cut_by)
            elif not call.client_gone:
                raise
        except GatewayError as error:
            self._fail(call, endpoint, error)
        except Exception as error:
            # The pipeline's edge: a bug must still end the answer honestly and settle what was delivered.
            gateway_log.error("%s failed in provider %s", call.request_id, call.provider, exc_info=error)
            self._fail(call, endpoint, InternalError())
        finally:
            call.running = False
            if call.sink is not None:
                call.sink.close()
            self._settle(call)
            _close_claim(call)

    # Quote -----------------------------------------------------------------------------------------------------------

    async def _quote(
        self, call: Call, endpoint: Endpoint[Any], body: Body, *, path: str, idempotency_key: str | None
    ) -> str:
        """Decode, resolve and quote; the body's digest. The caller is told a refusal once its key is confirmed."""
        services, model, digest = self._services, None, ""
        try:
            content = body.take()
            if idempotency_key is not None:
                check_name(idempotency_key)
                digest = body.digest(path)
            request = endpoint.decode(content, services.settings)
            model = call.model = self._find_model(request.model)
            call.request, call.body_size = request, body.size
            quote = endpoint.quote(request, model, body.size)
            call.adapted = self._adapt(endpoint, request, model)
            call.stream = endpoint.wants_stream(request)
            self._accept(call, endpoint, quote)
        except GatewayError as error:
            view = await services.auth.confirm(call.key)
            if model is not None and not view.permits(model.name, model.groups):
                raise ModelNotPermitted() from error
            raise
        return digest

    def _find_model(self, name: str) -> Model:
        model = self._services.catalog.find(name)
        if model is not None:
            return model
        if self._services.settings.server.unknown_model_status == 404:
            raise ModelNotFound(param="model")
        raise ModelNotPermitted()

    def _adapt(self, endpoint: Endpoint[Any], request: Any, model: Model) -> list[Adapted[Any]]:
        """Who can serve the request, and what each of them will see of it; BadRequest when nobody can."""
        if endpoint.name not in model.endpoints:
            raise UnsupportedParameter(f"The model '{model.name}' does not serve this endpoint", param="model")
        candidates = self._services.router.resolve(model, endpoint.capability)
        if model.fallbacks:  # which may be models of another kind on a provider that can do both
            candidates = [one for one in candidates if endpoint.name in one.model.endpoints]
            if not candidates:
                raise NoHealthyUpstream()
        return adapt(
            request,
            candidates,
            endpoint.capability,
            unknown_params=self._services.settings.server.unknown_params,
            check=endpoint.check_candidate,
        )

    def _accept(self, call: Call, endpoint: Endpoint[Any], quote: Quote) -> None:
        """Go on with that quote: its output limit is what upstreams are sent."""
        call.quote, call.service_tier = quote, quote.service_tier
        limit = quote.output_limit
        if limit is not None:
            call.adapted = [
                Adapted(one.candidate, endpoint.limit_output(one.request, limit), one.dropped) for one in call.adapted
            ]
            call.reply.headers["x-gateway-max-tokens"] = str(limit)

    # Idempotency -----------------------------------------------------------------------------------------------------

    async def _claim(self, call: Call, name: str, digest: str) -> bool:
        """Claim the Idempotency-Key; False when the call was made before and its answer has been repeated."""
        try:
            found = await self._services.idempotency.claim(
                call.key, name, digest=digest, request_id=call.request_id, model=call.model.name
            )
        except (BadRequest, Conflict):
            await self._permit(call)
            raise
        if isinstance(found, Claim):
            call.claim = found
            return True
        await self._permit(call)
        _replay(call, found)
        return False

    async def _permit(self, call: Call) -> None:
        """What admission decides for a call that runs, for one that does not."""
        view = await self._services.auth.confirm(call.key)
        if not view.permits(call.model.name, call.model.groups):
            raise ModelNotPermitted()

    # Hold ------------------------------------------------------------------------------------------------------------

    async def _hold(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """Hold the worst case: key, permission, limits and balance are decided in one atomic step."""
        services, asked = self._services, time.monotonic()
        try:
            hold = await self._admit(call, endpoint)
        except BaseException:
            _close_claim(call)  # whoever was refused may try again
            raise
        call.hold = hold
        services.metrics.store_round_trip(time.monotonic() - asked)
        services.metrics.begun(endpoint.name)
        if hold.rates is not None:
            call.reply.headers.update(hold.rates.headers())
        services.active_calls.add(call)

    async def _admit(self, call: Call, endpoint: Endpoint[Any]) -> Any:
        ledger = self._services.ledger
        try:
            return await ledger.admit(_ask(call))
        except (BalanceExhausted, BudgetExceeded):
            if call.model.hold != "clamp":
                raise
            smaller = endpoint.clamp(call.quote, await ledger.spendable(call.key))
            if smaller is None:
                raise
            self._accept(call, endpoint, smaller)
            return await ledger.admit(_ask(call))

    # Dispatch and encode ---------------------------------------------------------------------------------------------

    async def _answer(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """The first whole answer of a candidate, encoded; settled before it is sent."""
        services, started = self._services, time.monotonic()
        try:
            answer = await services.dispatcher.call(
                call.adapted, endpoint.attempt, call.attempts, kind=endpoint.answers
            )
        finally:
            call.upstream_waited = time.monotonic() - started
        self._describe(call)
        call.public_model = (
            await self._public_model(call) if endpoint.names_model and call.fallback else call.model.name
        )
        body, media_type = await endpoint.encode(call, answer, services)
        self._settle(call)
        record, headers = call.record, call.reply.headers
        assert record is not None
        if "cost" in services.settings.server.response_headers or call.key.shows_cost:
            headers["x-gateway-cost"] = format_amount(record.cost)
        headers["Content-Type"] = media_type
        if call.claim is not None:
            call.claim.keep(body)
            # The settlement leaves in a later step of the loop, so the store has the answer before the charge.
            call.claim.complete(200, headers)
        call.reply.send(body, media_type=media_type)

    async def _stream(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """The first stream of a candidate that yields something; meanwhile comments keep the client waiting."""
        services, started = self._services, time.monotonic()
        sink = call.sink = endpoint.sink(call, services)
        try:
            opened = await services.dispatcher.open(call.adapted, endpoint.attempt_stream, call.attempts)
        finally:
            call.upstream_waited = time.monotonic() - started
        self._describe(call)
        call.public_model = call.model.name
        if endpoint.names_model and call.fallback:
            call.public_model = await self._public_model_of(call, opened)
        call.encoder = endpoint.stream_encoder(call, opened, services)
        try:
            last = await relay(call, endpoint, opened, services)
        finally:
            endpoint.stream_ended(call)
        last = endpoint.last_frames(call, last)
        self._settle(call)
        sink.finish(last)

    def _describe(self, call: Call) -> None:
        """Headers that say who served, and what it was not told."""
        served, headers = call.attempts[-1], call.reply.headers
        if len(call.adapted) == 1:
            dropped = call.adapted[0].dropped
        else:
            dropped = next(adapted.dropped for adapted in call.adapted if adapted.candidate is served)
        if dropped:
            headers["x-gateway-dropped-params"] = ",".join(dropped)
        wanted = self._services.settings.server.response_headers
        if "model" in wanted:
            headers["x-gateway-model"] = served.model.name
        if "provider" in wanted:
            headers["x-gateway-provider"] = served.target.provider
        if "attempts" in wanted:
            headers["x-gateway-attempts"] = str(len(call.attempts))

    async def _public_model(self, call: Call) -> str:
        """The model that the answer of a fallback names: the fallback if the caller may use it, else the one asked for.

        Admission decides about the model asked for alone, so this reads the store once. The answer does not depend on
        the read: where it fails, the answer names the model asked for.
        """
        served = call.attempts[-1].model
        try:
            view = await self._services.auth.confirm(call.key)
        except GatewayError:
            return call.model.name
        return served.name if view.permits(served.name, served.groups) else call.model.name

    async def _public_model_of(self, call: Call, opened: Opened[Any]) -> str:
        """`_public_model` of a stream that nothing reads yet, so that it is closed here when this fails."""
        try:
            return await self._public_model(call)
        except BaseException:
            await close_stream(opened, self._services.dispatcher)
            raise

    # The end ---------------------------------------------------------------------------------------------------------

    def _fail(self, call: Call, endpoint: Endpoint[Any], error: GatewayError) -> None:
        """End the answer with `error`: as a status if nothing was sent yet, else inside what was begun."""
        if isinstance(error, ContextLengthExceeded | ContentFiltered):
            error.param = endpoint.prompt_param  # a provider need not know which endpoint it serves
            if isinstance(error, ContentFiltered):
                error.code = endpoint.filter_code
        call.outcome, call.status, call.detail = error.code or "error", error.status, error.log_text()
        if call.committed:
            assert call.sink is not None
            call.sink.fail(endpoint.error_frame(error))
        else:
            call.reply.send_error(error)

    def _settle(self, call: Call) -> None:
        """Charge what was used: at the end, or earlier once the amount is known."""
        if call.settled:
            return
        if call.client_gone:
            call.outcome, call.status = "client_closed", 499
        try:
            usage = None if call.client_gone and call.model.disconnect == "void" else call.usage()
        except Exception as error:
            # In the settle path a bug in counting must not lose the charge: the prompt's estimate is charged instead.
            gateway_log.error("%s: usage failed", call.request_id, exc_info=error)
            usage = call.quote.prompt
        services = self._services
        services.active_calls.discard(call.request_id)
        services.metrics.ended(call.endpoint.name)
        services.settlement.settle(call, usage)


def _ask(call: Call) -> Ask:
    quote = call.quote
    return Ask(
        request_id=call.request_id,
        key=call.key,
        model=quote.model,
        model_groups=quote.groups,
        hold=quote.hold,
        tokens=quote.tokens,
        price_version=quote.price.version,
    )


def _close_claim(call: Call) -> None:
    if call.claim is not None:
        call.claim.close(call.reply.headers, charged=call.record is not None and call.record.cost > 0)


def _replay(call: Call, answer: Answer) -> None:
    """Send the answer that was kept, cut where it was cut."""
    head, reply = answer.head, call.reply
    reply.headers |= head.headers
    reply.headers["Idempotent-Replayed"] = "true"
    reply.headers["x-gateway-original-request"] = answer.request_id
    if head.whole and not head.headers["Content-Type"].startswith("text/event-stream"):
        reply.headers["Content-Length"] = str(len(answer.body))
    call.outcome = "replayed"
    reply.begin(head.status, answer.body)
    if head.whole:
        reply.exchange.finish()
    else:
        reply.exchange.abort()
