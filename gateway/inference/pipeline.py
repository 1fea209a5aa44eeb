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

from gateway import errors
from gateway.amounts import format_amount
from gateway.http_client.send_state import track
from gateway.inference.answer_checks import check_answer
from gateway.inference.call import Call
from gateway.inference.call_checks import check_call
from gateway.inference.call_decode import DROPPED, decode_call, quote_in_turns
from gateway.inference.call_end import close_claim, fail, fail_stopped, settle
from gateway.inference.call_hold import check_call_scopes, check_permission, hold_cost
from gateway.inference.call_quote import quote_call, quote_replaced, with_tags
from gateway.inference.call_route import order
from gateway.inference.call_stages import CallRequest, QuotedCall
from gateway.inference.endpoint import Endpoint, Received
from gateway.inference.event_stream import close_stream, relay
from gateway.inference.given_answers import ask_hooks, stream_of
from gateway.inference.hooked_call import HookedCall
from gateway.inference.idempotency import Claim, StoredAnswer
from gateway.inference.kept_answers import collect_stream, collect_whole, keep_answer
from gateway.inference.services import Services
from gateway.log import gateway_log
from gateway.routing.dispatcher import Opened


class Pipeline:
    """The stages of a call, with the services of one worker."""

    __slots__ = ("_services",)

    def __init__(self, services: Services) -> None:
        self._services = services

    async def run(
        self,
        asked: CallRequest,
        endpoint: Endpoint[Any],
        received: Received,
    ) -> None:
        """Answer one request; raises the error of a refusal, and then nothing is held.

        CancelledError if the client disconnects while a large body waits for its turn.
        """
        services = self._services
        try:
            fetch = bool(services.media_fetching.providers)
            if fetch or received.body.is_large:
                digest, quoted = await quote_in_turns(asked, endpoint, services, received, fetch=fetch)
            else:
                digest = decode_call(asked, endpoint, services, received)
                quoted = quote_call(asked, endpoint, services)
                if quoted.model.hooks and await check_call(asked, endpoint, services, received):
                    quoted = quote_replaced(asked, quoted, endpoint, services)
            if services.settings.server.tags:
                quoted = with_tags(quoted, asked, received.tags, services)
        except errors.GatewayError:
            await check_permission(asked, services)
            raise
        name = received.idempotency_key
        if name is not None and not await self._claim(asked, quoted, name, digest):
            return
        call = await hold_cost(asked, quoted, endpoint, services)
        track(call.sending)
        try:
            if asked.hooked is not None:
                await self._begin_hooked(call, asked.hooked, endpoint)
            if not call.client_gone:
                await (self._stream(call, endpoint) if endpoint.is_relayed(call) else self._answer(call, endpoint))
        except asyncio.CancelledError:
            if not (call.stopped or call.client_gone):
                raise
            fail_stopped(call, services)
        except errors.GatewayError as error:
            if call.stopped:
                fail_stopped(call, services)  # a provider may turn the cancellation into an error of its own
            else:
                fail(call, error, services)
        except Exception as error:
            # The pipeline's edge: after a bug the client still gets an error, and what was delivered is settled.
            gateway_log.error("%s failed in provider %s", call.request_id, call.provider, exc_info=error)
            fail(call, errors.InternalError(), services)
        finally:
            call.running = False
            if call.sink is not None:
                call.sink.close()
            settle(call, services)
            if call.claim is not None:
                close_claim(call, call.claim)

    # Idempotency -----------------------------------------------------------------------------------------------------

    async def _claim(self, asked: CallRequest, quoted: QuotedCall, name: str, digest: str) -> bool:
        """Claim the Idempotency-Key; False when the stored answer of an earlier call was sent."""
        services, request_id = self._services, asked.request_id
        try:
            found = await services.idempotency.claim(
                asked.key, name, digest=digest, request_id=request_id, model=quoted.model.name
            )
        except (errors.BadRequest, errors.Conflict):
            await check_permission(asked, services)
            raise
        if isinstance(found, Claim):
            asked.claim = found
            return True
        try:
            rates = await services.ledger.count_replay(request_id, asked.key, quoted.quote)
        except errors.KeyRestricted as restricted:
            check_call_scopes(asked, restricted.scopes)
            rates = await services.ledger.count_replay(request_id, asked.key, quoted.quote)
        if rates is not None:
            rates.write(asked.reply.headers)
        _replay(asked, found)
        return False

    # Dispatch and encode ---------------------------------------------------------------------------------------------

    async def _answer(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """Send the first whole answer of a candidate; it is settled before it is sent."""
        services, started = self._services, time.monotonic()
        answer = None if call.hooked is None else call.hooked.answer
        if answer is None:
            try:
                answer = await services.dispatcher.call(
                    call.adapted, endpoint.attempt, call.attempts, kind=endpoint.answers
                )
            finally:
                call.upstream_waited = time.monotonic() - started
            if call.stop_by:
                raise asyncio.CancelledError  # its provider answered the cancellation
            self._describe(call)
            if call.hooked is not None:
                collect_whole(call, endpoint, answer, services)
        call.public_model = (
            await self._public_model(call) if endpoint.names_model and call.fallback else call.model.name
        )
        if call.sending.trace is not None and call.sending.trace.keeps_texts:
            call.sending.trace.answer = answer
        body, media_type = await endpoint.encode(call, answer, services)
        if call.hooked is not None:
            body = await check_answer(call, body, media_type, services)
            if call.stop_by:
                raise asyncio.CancelledError
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
        if call.hooked is not None:
            keep_answer(call, services)

    async def _stream(self, call: Call, endpoint: Endpoint[Any]) -> None:
        """Send the first stream that yields an item; until then keep-alive comments hold the connection open."""
        services, started = self._services, time.monotonic()
        sink = call.sink = endpoint.sink(call, services)
        if call.hooked is not None and call.hooked.answer is not None:
            opened = stream_of(call)
        else:
            services.clock.opens(call)
            try:
                opened = await services.dispatcher.open(call.adapted, endpoint.attempt_stream, call.attempts)
            finally:
                call.upstream_waited = time.monotonic() - started
            self._describe(call)
            if call.hooked is not None:
                collect_stream(call, endpoint, opened, services)
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
        if call.hooked is not None:
            keep_answer(call, services)

    async def _begin_hooked(self, call: Call, hooked: HookedCall, endpoint: Endpoint[Any]) -> None:
        """Give the call what its hooks share, and the answer of a hook or the order of its candidates."""
        call.hooked, hooked.session = hooked, call.quote.session
        if not await ask_hooks(call, endpoint, self._services):
            await order(call, self._services)

    def _describe(self, call: Call) -> None:
        """Set the headers that name the provider that served and the dropped fields."""
        served, headers = call.attempts[-1], call.reply.headers
        if len(call.adapted) == 1:
            dropped = call.adapted[0].dropped
        else:
            dropped = next(adapted.dropped for adapted in call.adapted if adapted.candidate is served)
        if dropped:
            replaced = (headers[DROPPED],) if DROPPED in headers else ()  # in the body, before it was decoded
            headers[DROPPED] = ",".join((*dropped, *replaced))
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


def _replay(asked: CallRequest, answer: StoredAnswer) -> None:
    """Send the stored answer; cut it where the first one was cut."""
    head, reply = answer.head, asked.reply
    reply.headers |= head.headers
    reply.headers["Idempotent-Replayed"] = "true"
    reply.headers["x-gateway-original-request"] = answer.request_id
    if head.whole and not head.headers["Content-Type"].startswith("text/event-stream"):
        reply.headers["Content-Length"] = str(len(answer.body))
    asked.outcome = "replayed"
    reply.begin(head.status, answer.body)
    if head.whole:
        reply.exchange.finish()
    else:
        reply.exchange.abort()
