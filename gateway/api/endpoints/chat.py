"""`POST /v1/chat/completions`, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from typing import cast

from msgspec import UNSET, Raw, structs

from gateway.api.answering_handler import AnsweringHandler
from gateway.api.quote import Terms
from gateway.billing.token_estimate import AUDIO_PER_SECOND, PromptEstimate, chat_prompt, with_safety
from gateway.billing.usage import Usage, is_possible, tokens_of
from gateway.catalog import Model
from gateway.encoders.chat import ChatStreamEncoder, Shape, complete, delivered_units
from gateway.errors import ContextLengthExceeded, OutOfRange
from gateway.inference.call import Call
from gateway.inference.hold_extension import HoldExtension
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.provider import Chat
from gateway.routing.continuation import Continuation
from gateway.routing.request_adaptation import Adapted
from gateway.routing.router import Candidate
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import ChatChunk, ChatCompletion, CompletionUsage

#: What one media part, or a provider's own frame around the prompt, can add to a true count.
MEDIA_CEILING = 200_000
#: Output that reasoning may add beyond what the caller's limit says.
REASONING_CEILING = 1_000_000
#: Bytes a second below which a prompt holds no sound worth the name: a count of more seconds is impossible.
SLOWEST_SOUND = 100
#: Tokens of output below which a call is refused rather than clamped: nobody wants half a sentence.
LEAST_OUTPUT = 16


class ChatHandler(AnsweringHandler[ChatRequest]):
    """Chat and reasoning models."""

    endpoint = "chat"
    capability = Chat
    answers = ChatCompletion

    encoder: ChatStreamEncoder | None = None
    used: Usage | None = None  # once an answer is whole
    body_size = 0
    continuation: Continuation | None = None
    bounded = False  # the caller set an output limit, so the hold covers the worst

    # Terms -----------------------------------------------------------------------------------------------------------

    def decode(self, body: bytes) -> ChatRequest:
        self.body_size = len(body)
        return decode_chat_request(body)

    def wants_stream(self, request: ChatRequest) -> bool:
        return bool(request.stream)

    def price(self, request: ChatRequest, model: Model) -> Terms[ChatRequest]:
        wanted, choices = request.max_output, request.n or 1
        prompt = chat_prompt(request, factor=model.token_factor)
        tokens = prompt.tokens
        _check_output_limit(request, model, wanted)
        _check_window(model, tokens, wanted or 0)
        self.adapt(request, model)
        self.bounded = wanted is not None
        reserve = longest = model.reserve_output(wanted)
        if not (self.bounded or request.stream):
            # A stream asks for more as it goes on; an answer that comes whole cannot, so the longest one is held.
            longest = model.max_output_tokens or reserve
            if model.hold == "clamp" and model.max_output_tokens is None:
                self._limit_output(reserve)
        return Terms(
            request,
            model,
            Usage(
                in_text=prompt.text,
                in_image=prompt.image,
                in_audio=prompt.audio,
                audio_seconds_in=_seconds(prompt.audio, model),
                estimated=True,
            ),
            _worst(request, prompt, longest * choices, model=model),
            # A text token is at least one byte long, so a prompt has no more tokens than its body has bytes.
            (
                self.body_size + MEDIA_CEILING * (1 + prompt.media),
                max(wanted or 0, model.max_output_tokens or 0) * choices + REASONING_CEILING,
            ),
            service_tier=request.service_tier,
            # Rates go by what is likely: with the longest answer, a limit in tokens per minute would let little pass.
            tokens=with_safety(tokens) + reserve * choices,
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
        self.adapted = [_with_output_limit(adapted, tokens) for adapted in self.adapted]
        self.set_header("x-gateway-max-tokens", str(tokens))

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
        if call.stream:
            await self._serve_stream(call, shape)
        else:
            await self._serve_whole(call, shape)

    async def _serve_whole(self, call: Call, shape: Shape) -> None:
        def attempt(adapted: Adapted[ChatRequest]) -> Awaitable[ChatCompletion]:
            return _chat(adapted.candidate).chat(adapted.request, adapted.candidate.target)

        answer = await self.call_whole(call, attempt)
        if call.fallback:
            shape = structs.replace(shape, model=await self.fallback_name(call))
        if answer.usage is None or not is_possible(answer.usage):
            self.tell_estimated()
            used = _estimated(call, delivered_units(answer))
            answer.usage = _public(used)
        else:
            used = self._counted(call, answer.usage)
        _bill_tier(call, answer.service_tier)
        body = complete(answer, shape)
        self.used = used
        self.deliver(call, body)

    async def _serve_stream(self, call: Call, shape: Shape) -> None:
        def attempt(adapted: Adapted[ChatRequest]) -> AsyncIterator[ChatChunk]:
            return _chat(adapted.candidate).stream_chat(adapted.request, adapted.candidate.target)

        opened = await self.open_stream(call, attempt)
        if call.fallback:
            shape = structs.replace(shape, model=await self.fallback_stream_name(call, opened))
        encoder = self.encoder = ChatStreamEncoder(shape, estimate=lambda units: _public(_estimated(call, units)))
        if call.model.continue_cut:

            def forget() -> None:
                encoder.usage = None  # what the first upstream counted is not the whole

            self.continuation = Continuation(
                opened,
                self.adapted,
                dispatcher=self.gateway.dispatcher,
                attempt=attempt,
                tried=call.attempts,
                going_on=forget,
            )
            opened.rest = self.continuation.chunks()
        try:
            extension = HoldExtension(call, self.gateway.ledger, bounded=self.bounded)
            last = await self.relay(call, opened, encoder, extension=extension)
        finally:
            _bill_tier(call, encoder.used_tier)
        self.end_stream(call, last)

    def note_delivery(self, call: Call) -> Slot:
        assert self.encoder is not None
        return self.gateway.running.bill(call, _billed_tier(call, self.encoder.used_tier))

    @property
    def continued(self) -> bool:
        """Whether a second upstream finished what a first began, so that neither's count is the answer's."""
        return self.continuation is not None and self.continuation.continued

    # The bill --------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        if self.used is not None:
            return self.used
        if self.encoder is not None and self.encoder.usage is not None and not self.continued:
            return self._counted(call, self.encoder.usage)
        told = self.encoder is not None and self.encoder.content_started and self.headers_sent()
        if self.encoder is not None and (told or call.outcome == "ok"):
            return _estimated(call, self.encoder.delivered_units)
        if self.client_gone and call.attempts:
            return call.prompt  # the upstream was already reading it
        return None

    def _counted(self, call: Call, told: CompletionUsage) -> Usage:
        """The upstream's own count; sound that is priced by time and that it has not timed takes our estimate."""
        used = Usage.of_chat(told)
        if call.prompt.audio_seconds_in and not used.audio_seconds_in:
            return structs.replace(used, audio_seconds_in=call.prompt.audio_seconds_in, estimated=True)
        if used.audio_seconds_in * SLOWEST_SOUND > self.body_size:
            return structs.replace(used, audio_seconds_in=call.prompt.audio_seconds_in, estimated=True)
        return used


def _chat(candidate: Candidate) -> Chat:
    """The candidate's provider, whose capability the router has checked."""
    return cast("Chat", candidate.provider)


def _with_output_limit(adapted: Adapted[ChatRequest], tokens: int) -> Adapted[ChatRequest]:
    """The same with at most that many tokens of output, in the caller's spelling if there is one."""
    request = adapted.request
    given = [name for name in ("max_tokens", "max_completion_tokens") if getattr(request, name) is not None]
    limits = dict.fromkeys(given or ["max_tokens"], tokens)
    fields = request.fields | {name: Raw(b"%d" % tokens) for name in limits}
    return structs.replace(adapted, request=structs.replace(request, fields=fields, **limits))


def _check_output_limit(request: ChatRequest, model: Model, wanted: int | None) -> None:
    limit = model.max_output_tokens
    if limit is not None and wanted is not None and wanted > limit:
        raise OutOfRange(
            f"max_tokens is too large: {wanted}. This model supports at most {limit} completion tokens.",
            code="integer_above_max_value",
            param="max_tokens" if request.max_tokens is not None else "max_completion_tokens",
        )


def _check_window(model: Model, estimate: int, output: int) -> None:
    """Refuse what cannot fit; within a factor of two an estimate proves nothing, and the upstream decides."""
    window = model.context_window
    if window is not None and estimate // 2 + output > window:
        raise ContextLengthExceeded(
            f"The messages and the requested output exceed this model's context length of {window} tokens.",
            param="messages",
        )


def _seconds(audio: int, model: Model) -> float:
    """Seconds of sound in a prompt, where they are what is paid for."""
    return audio / AUDIO_PER_SECOND if audio and model.price.per_second_in else 0.0


def _worst(request: ChatRequest, prompt: PromptEstimate, tokens: int, *, model: Model) -> Usage:
    """What may be used at most: the prompt's estimate with its margin, and `tokens` of output."""
    if not (prompt.media or request.modalities):  # text in and out
        return Usage(in_text=with_safety(prompt.text), out_text=tokens, estimated=True)
    speaks = "audio" in (request.modalities or ())
    audio = with_safety(prompt.audio)
    return Usage(
        in_text=with_safety(prompt.text),
        in_image=with_safety(prompt.image),
        in_audio=audio,
        audio_seconds_in=_seconds(audio, model),
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
    call.service_tier = _billed_tier(call, used)


def _billed_tier(call: Call, used: object) -> str | None:
    return call.price.billed_tier(call.service_tier, used if isinstance(used, str) else None)


def _estimated(call: Call, units: int) -> Usage:
    """The bill without upstream usage: the prompt's estimate and what was delivered."""
    return structs.replace(call.prompt, out_text=tokens_of(units, factor=call.model.token_factor))


def _public(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.tokens_in,
        completion_tokens=usage.tokens_out,
        total_tokens=usage.tokens_in + usage.tokens_out,
    )
