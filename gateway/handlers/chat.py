"""`POST /v1/chat/completions`, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING

from msgspec import UNSET

from gateway.allowance import Allowance
from gateway.call import Call
from gateway.catalog import Model
from gateway.chat_fields import Fitted, fit
from gateway.dispatch import Opened
from gateway.errors import ContextLengthExceeded, GatewayError, OutOfRange
from gateway.estimate import chat_prompt, with_safety
from gateway.handlers.inference import InferenceHandler, Terms
from gateway.ids import completion_id
from gateway.provider import Chat
from gateway.relay import EventStream
from gateway.routing import Candidate
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import ChatChunk, ChatCompletion, CompletionUsage
from gateway.shaping import ChatShaper, Shape, complete, delivered_units
from gateway.usage import Usage, tokens_of

if TYPE_CHECKING:
    from gateway.server import Gateway
    from gateway.transport.http_exchange import Exchange

#: What one media part, or a provider's own frame around the prompt, can add to a true count.
MEDIA_CEILING = 200_000
#: Output that reasoning may add beyond what the caller's limit says.
REASONING_CEILING = 1_000_000


class ChatHandler(InferenceHandler[ChatRequest]):
    """Chat and reasoning models."""

    endpoint = "chat"

    def __init__(self, gateway: Gateway, exchange: Exchange, *, path: str, argument: str = "") -> None:
        super().__init__(gateway, exchange, path=path, argument=argument)
        self.shaper: ChatShaper | None = None
        self.stream: EventStream | None = None
        self.answer: ChatCompletion | None = None
        self.estimated: Usage | None = None
        self.fitted: list[Fitted] = []
        self.body_size = 0
        self.bounded = False  # the caller set an output limit, so the hold covers the worst

    # Terms -----------------------------------------------------------------------------------------------------------

    def decode(self, body: bytes) -> ChatRequest:
        self.body_size = len(body)
        return decode_chat_request(body)

    def wants_stream(self, request: ChatRequest) -> bool:
        return bool(request.stream)

    def price(self, request: ChatRequest, model: Model) -> Terms[ChatRequest]:
        prompt = chat_prompt(request, factor=model.token_factor)
        _check_output_limit(request, model)
        _check_window(request, model, prompt.tokens)
        self.fitted = fit(
            request, self.gateway.router.resolve(model, Chat), self.gateway.settings.server.unknown_params
        )
        self.bounded = request.max_output is not None
        reserve = model.reserve_output(request.max_output) * request.choices
        return Terms(
            request,
            model,
            Usage(in_text=prompt.tokens, estimated=True),
            Usage(in_text=with_safety(prompt.tokens), out_text=reserve, estimated=True),
            self._ceiling(request, model, media=prompt.media),
        )

    def _ceiling(self, request: ChatRequest, model: Model, *, media: int) -> tuple[int, int]:
        # A text token is at least one byte long, so a prompt has no more tokens than its body has bytes.
        output = max(request.max_output or 0, model.max_output_tokens or 0) * request.choices
        return self.body_size + MEDIA_CEILING * (1 + media), output + REASONING_CEILING

    # The answer ------------------------------------------------------------------------------------------------------

    async def serve(self, call: Call, request: ChatRequest) -> None:
        shape = Shape(
            completion_id(),
            int(time.time()),
            call.model.name,
            include_usage=request.wants_usage,
            obfuscation=self.gateway.settings.server.obfuscation if request.wants_obfuscation else "off",
            legacy_functions=request.legacy_functions,
            service_tier=request.service_tier,
            metadata=request.fields.get("metadata", UNSET) if request.metadata else UNSET,
        )
        waited = time.monotonic()
        try:
            if call.stream:
                await self._serve_stream(call, shape)
            else:
                await self._serve_whole(call, shape)
        finally:
            call.upstream_waited = call.upstream_waited or time.monotonic() - waited

    async def _serve_whole(self, call: Call, shape: Shape) -> None:
        def attempt(fitted: Fitted) -> Awaitable[ChatCompletion]:
            return _chat(fitted.candidate).chat(fitted.request, fitted.candidate.target)

        started = time.monotonic()
        answer = await self.gateway.dispatcher.call(self.fitted, attempt, call.attempts)
        call.upstream_waited = time.monotonic() - started
        if answer.usage is None:
            self.set_header("x-gateway-estimated", "true")
            self.estimated = _estimated(call, delivered_units(answer))
            answer.usage = _public(self.estimated)
        body = complete(answer, shape)
        self.answer = answer
        self._describe(call)
        self.settle(call)
        self.finish_bytes(body)

    async def _serve_stream(self, call: Call, shape: Shape) -> None:
        def attempt(fitted: Fitted) -> AsyncIterator[ChatChunk]:
            return _chat(fitted.candidate).stream_chat(fitted.request, fitted.candidate.target)

        stream = self.stream = EventStream(self, self.gateway.pulse)
        try:
            opened = await self.gateway.dispatcher.open(self.fitted, attempt, call.attempts)
            self._describe(call)
            self.shaper = ChatShaper(shape)
            await self._relay(call, opened, self.shaper, stream)
        finally:
            stream.close()

    async def _relay(self, call: Call, opened: Opened[ChatChunk], shaper: ChatShaper, stream: EventStream) -> None:
        chunk: ChatChunk | None = opened.first
        rest = opened.rest
        allowance = Allowance(call, self.gateway.ledger, bounded=self.bounded)
        try:
            while chunk is not None:
                frames = shaper.feed(chunk)
                if shaper.delivered_units >= allowance.until:
                    await allowance.extend(shaper.delivered_units)
                if frames:
                    call.chunks += 1
                    if call.first_token is None and shaper.content_started:
                        call.first_token = call.since_start()
                    slow = stream.send(frames)
                    if slow is not None:
                        await slow
                chunk = await anext(rest, None)
            last = shaper.close()
        finally:
            await rest.aclose()  # type: ignore[attr-defined]
        self.settle(call)
        stream.finish(last)

    def _describe(self, call: Call) -> None:
        """Headers that say who served, and what it was not told."""
        served = call.attempts[-1]
        dropped = next(fitted.dropped for fitted in self.fitted if fitted.candidate is served)
        if dropped:
            self.set_header("x-gateway-dropped-params", ",".join(dropped))
        if self.gateway.settings.server.debug_headers:
            self.set_header("x-gateway-model", served.model.name)
            self.set_header("x-gateway-provider", served.target.provider)
            self.set_header("x-gateway-attempts", str(len(call.attempts)))

    def headers_sent(self) -> bool:
        return self.stream is not None and self.stream.committed

    def end_in_stream(self, error: GatewayError) -> None:
        assert self.stream is not None
        self.stream.fail(error)

    # The bill --------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        if self.answer is not None and self.answer.usage is not None:
            return self.estimated or Usage.of_chat(self.answer.usage)
        if self.shaper is not None and self.shaper.usage is not None:
            return Usage.of_chat(self.shaper.usage)
        if self.shaper is not None and (self.shaper.content_started or call.outcome == "ok"):
            return _estimated(call, self.shaper.delivered_units)
        if self.client_gone and call.attempts:
            return call.prompt  # the upstream was already reading it
        return None


def _chat(candidate: Candidate) -> Chat:
    """The candidate's provider, whose capability the router has checked."""
    assert isinstance(candidate.provider, Chat)
    return candidate.provider


def _check_output_limit(request: ChatRequest, model: Model) -> None:
    limit, wanted = model.max_output_tokens, request.max_output
    if limit is not None and wanted is not None and wanted > limit:
        raise OutOfRange(
            f"max_tokens is too large: {wanted}. This model supports at most {limit} completion tokens.",
            code="integer_above_max_value",
            param="max_tokens" if request.max_tokens is not None else "max_completion_tokens",
        )


def _check_window(request: ChatRequest, model: Model, estimate: int) -> None:
    """Refuse what cannot fit; within a factor of two an estimate proves nothing, and the upstream decides."""
    window = model.context_window
    if window is not None and estimate // 2 + (request.max_output or 0) > window:
        raise ContextLengthExceeded(
            f"The messages and the requested output exceed this model's context length of {window} tokens.",
            param="messages",
        )


def _estimated(call: Call, units: int) -> Usage:
    """The bill without upstream usage: the prompt's estimate and what was delivered."""
    return Usage(in_text=call.prompt.in_text, out_text=tokens_of(units, factor=call.model.token_factor), estimated=True)


def _public(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.tokens_in,
        completion_tokens=usage.tokens_out,
        total_tokens=usage.tokens_in + usage.tokens_out,
    )
