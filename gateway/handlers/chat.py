"""`POST /v1/chat/completions`, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from typing import TYPE_CHECKING, cast

from msgspec import UNSET, structs

from gateway.allowance import Allowance
from gateway.call import Call
from gateway.catalog import Model
from gateway.chat_fields import Fitted, fit, with_output_limit
from gateway.dispatch import Opened
from gateway.errors import ContextLengthExceeded, GatewayError, OutOfRange
from gateway.estimate import PromptEstimate, chat_prompt, with_safety
from gateway.foreign import TURN, give_way
from gateway.handlers.inference import InferenceHandler, Terms
from gateway.provider import Chat
from gateway.relay import EventStream
from gateway.routing import Candidate
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import ChatChunk, ChatCompletion, CompletionUsage
from gateway.shaping import ChatShaper, Shape, complete, delivered_units
from gateway.usage import Usage, is_possible, tokens_of

if TYPE_CHECKING:
    from gateway.server import Gateway
    from gateway.transport.http_exchange import Exchange

#: What one media part, or a provider's own frame around the prompt, can add to a true count.
MEDIA_CEILING = 200_000
#: Output that reasoning may add beyond what the caller's limit says.
REASONING_CEILING = 1_000_000
#: Tokens of output below which a call is refused rather than clamped: nobody wants half a sentence.
LEAST_OUTPUT = 16


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
        reserve = longest = model.reserve_output(request.max_output)
        if not (self.bounded or request.stream):
            # A stream asks for more as it goes on; an answer that comes whole cannot, so the longest one is held.
            longest = model.max_output_tokens or reserve
            if model.hold == "clamp" and model.max_output_tokens is None:
                self._limit_output(reserve)
        return Terms(
            request,
            model,
            Usage(in_text=prompt.text, in_image=prompt.image, in_audio=prompt.audio, estimated=True),
            _worst(request, prompt, longest),
            self._ceiling(request, model, media=prompt.media),
            service_tier=request.service_tier,
            # Rates go by what is likely: with the longest answer, a limit in tokens per minute would let little pass.
            tokens=with_safety(prompt.tokens) + reserve * request.choices,
        )

    def lower(self, terms: Terms[ChatRequest], amount: int) -> Terms[ChatRequest] | None:
        request, worst = terms.request, terms.worst_case
        most = worst.tokens_out // request.choices

        def output(tokens: int) -> Usage:
            return _with_output(worst, tokens * request.choices)

        tokens = terms.affordable(amount, output=output, most=most)
        if tokens < min(LEAST_OUTPUT, most):
            return None
        self._limit_output(tokens)
        return terms.lowered(output(tokens))

    def _limit_output(self, tokens: int) -> None:
        self.bounded = True
        self.fitted = [with_output_limit(fitted, tokens) for fitted in self.fitted]
        self.set_header("x-gateway-max-tokens", str(tokens))

    def _ceiling(self, request: ChatRequest, model: Model, *, media: int) -> tuple[int, int]:
        # A text token is at least one byte long, so a prompt has no more tokens than its body has bytes.
        output = max(request.max_output or 0, model.max_output_tokens or 0) * request.choices
        return self.body_size + MEDIA_CEILING * (1 + media), output + REASONING_CEILING

    # The answer ------------------------------------------------------------------------------------------------------

    async def serve(self, call: Call, request: ChatRequest) -> None:
        shape = Shape(
            self.gateway.ids.completion_id(),
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
        if answer.usage is None or not is_possible(answer.usage):
            self.set_header("x-gateway-estimated", "true")
            self.estimated = _estimated(call, delivered_units(answer))
            answer.usage = _public(self.estimated)
        _bill_tier(call, answer.service_tier)
        body = complete(answer, shape)
        self.answer = answer
        self._describe(call)
        self.deliver(call, body)

    async def _serve_stream(self, call: Call, shape: Shape) -> None:
        def attempt(fitted: Fitted) -> AsyncIterator[ChatChunk]:
            return _chat(fitted.candidate).stream_chat(fitted.request, fitted.candidate.target)

        stream = self.stream = EventStream(self, self.gateway.pulse, claim=self.claim)
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
        taken = 0
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
                taken += 1
                if not taken % TURN or self.told_to_end():
                    await give_way()
                chunk = await anext(rest, None)
            last = shaper.close()
        except GatewayError:
            raise
        except BaseException as error:
            # A third-party provider may raise anything, and yield anything that the shaper chokes on.
            raise self.gateway.dispatcher.contain(opened.candidate, error) from error
        finally:
            _bill_tier(call, shaper.used_tier)
            await self._close(opened)
        self.settle(call)
        stream.finish(last)

    async def _close(self, opened: Opened[ChatChunk]) -> None:
        try:
            await opened.close()
        except BaseException as error:
            # Third-party clean-up: it cannot spoil an answer that is complete, nor hide why one is not.
            self.gateway.dispatcher.contain(opened.candidate, error)

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
    return cast("Chat", candidate.provider)


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


def _worst(request: ChatRequest, prompt: PromptEstimate, output: int) -> Usage:
    """What may be used at most: the prompt's estimate with its margin, and `output` tokens for each choice."""
    tokens = output * request.choices
    speaks = "audio" in (request.modalities or ())
    return Usage(
        in_text=with_safety(prompt.text),
        in_image=with_safety(prompt.image),
        in_audio=with_safety(prompt.audio),
        out_text=0 if speaks else tokens,
        out_audio=tokens if speaks else 0,  # nobody knows how much of it is sound
        estimated=True,
    )


def _with_output(usage: Usage, tokens: int) -> Usage:
    """`usage` with that many tokens of output, of the kind it has."""
    if usage.out_audio:
        return structs.replace(usage, out_audio=tokens)
    return structs.replace(usage, out_text=tokens)


def _bill_tier(call: Call, used: object) -> None:
    """Charge the service tier that the upstream says it used."""
    call.service_tier = call.price.billed_tier(call.service_tier, used if isinstance(used, str) else None)


def _estimated(call: Call, units: int) -> Usage:
    """The bill without upstream usage: the prompt's estimate and what was delivered."""
    return structs.replace(call.prompt, out_text=tokens_of(units, factor=call.model.token_factor))


def _public(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.tokens_in,
        completion_tokens=usage.tokens_out,
        total_tokens=usage.tokens_in + usage.tokens_out,
    )
