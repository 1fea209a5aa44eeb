"""The one path of every model call: quoted, held, dispatched, encoded, settled exactly once.

An `Endpoint` has the parts that differ between resources. Holds, dispatch, settlement, disconnected clients, cut calls,
drain and idempotency are implemented here, once. Sharp edges: a request that is refused before admission holds nothing.
After admission `settle` always runs. A client that disconnects cancels the call and its upstream request, unless the
call has an Idempotency-Key: a retry may then ask for the answer.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any

from msgspec import structs

from gateway import errors
from gateway.accounts.key_scopes import check_scopes
from gateway.amounts import format_amount
from gateway.billing.price_terms import LIST_PRICES, PriceTerms
from gateway.billing.quote import Quote
from gateway.catalog import Model
from gateway.http_client.send_state import track
from gateway.inference.call import Call
from gateway.inference.call_end import close_claim, fail, fail_stopped, settle
from gateway.inference.endpoint import Body, Endpoint
from gateway.inference.event_stream import close_stream, relay
from gateway.inference.idempotency import Answer, Claim, check_name
from gateway.inference.services import Services
from gateway.inference.tags import read_tags
from gateway.ledger import Hold
from gateway.ledger.admission import MAX_TRIES, Repriced, terms_keep_changing
from gateway.log import gateway_log
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted, adapt

#: Errors of an admission that may be tried again with something changed.
ADMITTED_AGAIN = (Repriced, errors.KeyRestricted, errors.QuotaExhausted, errors.CostLimitExceeded)


class Pipeline:
    """The stages of a call, with the services of one worker."""

    __slots__ = ("_services",)

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(
        self,
        call: Call,
        endpoint: Endpoint[Any],
        body: Body,
        *,
        path: str,
        idempotency_key: str | None,
        tags: str | None = None,
    ) -> None:
        """Answer one request; raises the error of a refusal, and then nothing is held. `tags`: the header's text."""
        try:
            if body.is_large:
                digest = await self._decode_large(call, endpoint, body, path=path, idempotency_key=idempotency_key)
            else:
                digest = self._decode(call, endpoint, body, path=path, idempotency_key=idempotency_key)
                self._quote(call, endpoint)
            if self._services.settings.server.tags:
                self._tag(call, tags)
        except errors.GatewayError:
            await self._permit(call)
            raise
        if idempotency_key is not None and not await self._claim(call, idempotency_key, digest):
            return
        await self._hold(call, endpoint)
        call.running, call.sending.account = True, call.key.account
        track(call.sending)
        try:
            if not call.client_gone:
                await (self._stream(call, endpoint) if endpoint.is_relayed(call) else self._answer(call, endpoint))
        except asyncio.CancelledError:
            if not (call.stopped or call.client_gone):
                raise
            fail_stopped(call, self._services)
        except errors.GatewayError as error:
            if call.stopped:
                fail_stopped(call, self._services)  # a provider may turn the cancellation into an error of its own
            else:
                fail(call, error, self._services)
        except Exception as error:
            # The pipeline's edge: after a bug the client still gets an error, and what was delivered is settled.
            gateway_log.error("%s failed in provider %s", call.request_id, call.provider, exc_info=error)
            fail(call, errors.InternalError(), self._services)
        finally:
            call.running = False
            if call.sink is not None:
                call.sink.close()
            settle(call, self._services)
            close_claim(call)

    # Quote -----------------------------------------------------------------------------------------------------------

    def _decode(
        self, call: Call, endpoint: Endpoint[Any], body: Body, *, path: str, idempotency_key: str | None
    ) -> str:
        """Decode the request; returns the body's digest."""
        content, digest = body.take(), ""
        if idempotency_key is not None:
            check_name(idempotency_key)
            digest = body.digest(path)
        call.request = endpoint.decode(content, self._services.settings)
        call.body_size = body.size
        return digest

    async def _decode_large(
        self, call: Call, endpoint: Endpoint[Any], body: Body, *, path: str, idempotency_key: str | None
    ) -> str:
        """Decode and quote a large request in two turns: 20,000 messages take 4 ms to decode and 2 to quote."""
        paced, account = self._services.paced_steps, call.key.account
        async with paced.turn(account):
            digest = self._decode(call, endpoint, body, path=path, idempotency_key=idempotency_key)
        async with paced.turn(account):
            self._quote(call, endpoint)
        return digest

    def _quote(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """Find the model, and quote the call."""
        model = call.model = self._find_model(call.request.model)
        terms = self._services.ledger.terms.of(call.key.account).terms
        if terms is not LIST_PRICES:
            model = call.model = self._services.catalog.priced(model, terms)
        request = call.request = endpoint.for_model(call.request, model)
        self._quote_at(call, endpoint, terms)
        call.stream = endpoint.wants_stream(request)

    def _quote_at(self, call: Call, endpoint: Endpoint[Any], terms: PriceTerms) -> None:
        """Quote the call at the price of its model."""
        request, model = call.request, call.model
        adapted = call.adapted = self._adapt(endpoint, request, model)
        quote = endpoint.quote(request, model, call.body_size, adapted)
        self._accept(call, endpoint, quote if terms is LIST_PRICES else structs.replace(quote, terms=terms))

    def _find_model(self, name: str) -> Model:
        model = self._services.catalog.find(name)
        if model is not None:
            return model
        if self._services.settings.server.unknown_model_status == 404:
            raise errors.ModelNotFound(param="model")
        raise errors.ModelNotPermitted()

    def _adapt(self, endpoint: Endpoint[Any], request: Any, model: Model) -> list[Adapted[Any]]:
        """The candidates with the request as each receives it; BadRequest when none supports it."""
        if endpoint.name not in model.endpoints:
            raise errors.UnsupportedParameter(f"The model '{model.name}' does not serve this endpoint", param="model")
        candidates = self._services.router.resolve(model, endpoint.capability)
        if model.fallbacks:  # a fallback may be a model of another kind, on a provider with both capabilities
            candidates = [one for one in candidates if endpoint.name in one.model.endpoints]
            if not candidates:
                raise errors.NoHealthyUpstream()
        return adapt(
            request,
            candidates,
            endpoint.capability,
            unknown_params=self._services.settings.server.unknown_params,
            check=endpoint.check_candidate,
        )

    def _accept(self, call: Call, endpoint: Endpoint[Any], quote: Quote) -> None:
        """Use `quote` for the call; its output limit is sent to upstreams."""
        call.quote, call.service_tier = quote, quote.service_tier
        limit = quote.output_limit
        if limit is not None:
            call.adapted = [endpoint.limit_output(one, limit) for one in call.adapted]

    def _tag(self, call: Call, header: str | None) -> None:
        """Add the caller's tags to the quote."""
        names, metadata = self._services.settings.server.tags, getattr(call.request, "metadata", None)
        if header is not None or metadata:
            call.quote = structs.replace(call.quote, tags=read_tags(names, header, metadata))

    # Idempotency -----------------------------------------------------------------------------------------------------

    async def _claim(self, call: Call, name: str, digest: str) -> bool:
        """Claim the Idempotency-Key; False when the stored answer of an earlier call was sent."""
        try:
            found = await self._services.idempotency.claim(
                call.key, name, digest=digest, request_id=call.request_id, model=call.model.name
            )
        except (errors.BadRequest, errors.Conflict):
            await self._permit(call)
            raise
        if isinstance(found, Claim):
            call.claim = found
            return True
        try:
            rates = await self._services.ledger.count_replay(call.request_id, call.key, call.quote)
        except errors.KeyRestricted as restricted:
            _check_scopes(call, restricted.scopes)
            rates = await self._services.ledger.count_replay(call.request_id, call.key, call.quote)
        if rates is not None:
            rates.write(call.reply.headers)
        _replay(call, found)
        return False

    async def _permit(self, call: Call) -> None:
        """Check key and permission for a call that is not admitted; their error replaces the one of the request."""
        model: Model | None = call.model  # None if the request was refused before its model was found
        view = await self._services.auth.confirm(call.key, [model.name] if model is not None else ())
        if view.scopes:
            _check_scopes(call, view.scopes)
        if model is not None and not view.permits(model.name, model.groups):
            raise errors.ModelNotPermitted()

    # Hold ------------------------------------------------------------------------------------------------------------

    async def _hold(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """Hold the worst cost: key, permission, limits and balance are checked in one atomic step."""
        services, asked = self._services, time.monotonic()
        try:
            if call.model.base is not None:  # an own price needs its table before its first hold
                await services.price_tables.ensure(call.quote.price)
            try:
                hold = await services.ledger.admit(call.request_id, call.key, call.quote)
            except ADMITTED_AGAIN as error:
                hold = await self._admit_again(call, endpoint, error)
        except BaseException:
            close_claim(call)  # a refused call may be retried with the same key
            raise
        call.hold = hold
        if call.quote.output_limit is not None:
            call.reply.headers["x-gateway-max-tokens"] = str(call.quote.output_limit)
        services.metrics.store_round_trip(time.monotonic() - asked)
        services.metrics.begun(endpoint.name)
        if hold.rates is not None:
            hold.rates.write(call.reply.headers)
        services.active_calls.add(call)
        services.clock.begin(call)

    async def _admit_again(self, call: Call, endpoint: Endpoint[Any], error: Exception) -> Hold:
        """Admit a call after an error that says what to change; raises an error that nothing can be done about."""
        lowered = restricted = False
        try:
            for _ in range(MAX_TRIES):
                if isinstance(error, Repriced):
                    await self._reprice(call, endpoint, error)
                elif isinstance(error, errors.KeyRestricted):
                    if restricted:
                        raise error
                    restricted = True
                    _check_scopes(call, error.scopes)
                elif lowered or not call.quote.share:
                    raise error
                else:
                    lowered = True
                try:
                    if lowered:
                        return await self._admit_lowered(call, endpoint)
                    return await self._services.ledger.admit(call.request_id, call.key, call.quote)
                except ADMITTED_AGAIN as again:
                    error = again
            raise terms_keep_changing()
        finally:
            del error  # its traceback refers to this frame

    async def _reprice(self, call: Call, endpoint: Endpoint[Any], error: Repriced) -> None:
        """Quote the call again at the prices that its account has now."""
        services = self._services
        if error.unknown:
            await services.ledger.terms.read(call.key.account)
        terms = services.ledger.terms.of(call.key.account).terms
        model = call.model = services.catalog.priced(call.model.base or call.model, terms)
        self._quote_at(call, endpoint, terms)
        if model.base is not None:
            await services.price_tables.ensure(call.quote.price)

    async def _admit_lowered(self, call: Call, endpoint: Endpoint[Any]) -> Hold:
        """Admit a call with a smaller hold, and lower its output limit."""
        hold = await self._services.ledger.admit(call.request_id, call.key, endpoint.lowerable(call.quote))
        if hold.amount < call.quote.hold:
            self._lower(call, endpoint, hold)
        return hold

    def _lower(self, call: Call, endpoint: Endpoint[Any], hold: Hold) -> None:
        """Lower the output limit to what the smaller hold covers."""
        try:
            smaller = endpoint.clamp(call.quote, hold.amount)
            if smaller is None:
                raise errors.BalanceExhausted()
            self._accept(call, endpoint, smaller)
        except BaseException:
            self._services.ledger.book(hold, None)
            raise

    # Dispatch and encode ---------------------------------------------------------------------------------------------

    async def _answer(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """Send the first whole answer of a candidate; it is settled before it is sent."""
        services, started = self._services, time.monotonic()
        try:
            answer = await services.dispatcher.call(
                call.adapted, endpoint.attempt, call.attempts, kind=endpoint.answers
            )
        finally:
            call.upstream_waited = time.monotonic() - started
        if call.stop_by:
            raise asyncio.CancelledError  # its provider answered the cancellation
        self._describe(call)
        call.public_model = (
            await self._public_model(call) if endpoint.names_model and call.fallback else call.model.name
        )
        body, media_type = await endpoint.encode(call, answer, services)
        settle(call, services)
        record, headers = call.record, call.reply.headers
        assert record is not None
        if "cost" in services.settings.server.response_headers or call.key.shows_cost:
            headers["x-gateway-cost"] = format_amount(record.cost)
        headers["Content-Type"] = media_type
        if call.claim is not None:
            call.claim.keep(body)
            # The settlement is sent in a later step of the event loop, so the store gets the answer before the charge.
            call.claim.complete(200, headers)
        call.reply.send(body, media_type=media_type)

    async def _stream(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """Send the first stream that yields an item; until then keep-alive comments hold the connection open."""
        services, started = self._services, time.monotonic()
        sink = call.sink = endpoint.sink(call, services)
        services.clock.opens(call)
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
        settle(call, services)
        sink.finish(last)

    def _describe(self, call: Call) -> None:
        """Set the headers that name the provider that served and the dropped fields."""
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
        """The model that the answer of a fallback names: the fallback if the caller may use it, else the requested one.

        Admission checks the requested model only, so this reads the store once. If the read fails, the answer names
        the requested model.
        """
        served = call.attempts[-1].model
        try:
            view = await self._services.auth.confirm(call.key, [served.name])
        except errors.GatewayError:
            return call.model.name
        return served.name if view.permits(served.name, served.groups) else call.model.name

    async def _public_model_of(self, call: Call, opened: Opened[Any]) -> str:
        """`_public_model` for a stream that is not read yet; closes the stream when it fails."""
        try:
            return await self._public_model(call)
        except BaseException:
            await close_stream(opened, self._services.dispatcher)
            raise


def _check_scopes(call: Call, scopes: str) -> None:
    """Check the scopes of the call's key, and note that they were checked; KeyRestricted if they do not permit it."""
    check_scopes(scopes, call.caller.client_address() if call.caller is not None else "", call.endpoint.name)
    call.key = structs.replace(call.key, scopes=scopes)


def _replay(call: Call, answer: Answer) -> None:
    """Send the stored answer; cut it where the first one was cut."""
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
