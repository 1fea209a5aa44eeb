"""`POST /v1/chat/completions`, whole and streamed."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable
from functools import partial
from typing import Any, cast

from msgspec import UNSET, Raw, structs

from gateway.billing.quote import Quote
from gateway.billing.token_estimate import AUDIO_PER_SECOND, PromptEstimate, chat_prompt, with_safety
from gateway.billing.usage import Usage, is_possible, tokens_of
from gateway.catalog import Model
from gateway.config.settings import Settings
from gateway.encoders.chat import ChatStreamEncoder
from gateway.encoders.chat_completion import encode_completion, quarter_tokens_of
from gateway.encoders.chat_form import AnswerForm
from gateway.errors import ContextLengthExceeded, OutOfRange
from gateway.http_server.reply import JSON
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.hold_extension import HoldExtension
from gateway.inference.services import Services
from gateway.ledger import Ledger
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.provider import Chat
from gateway.routing.continuation import Continuation
from gateway.routing.dispatcher import Opened
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.chat_request import ChatRequest, decode_chat_request
from gateway.schemas.chat_response import ChatChunk, ChatCompletion, CompletionUsage

#: Tokens that one media part, or a provider's own text around the prompt, can add to the upstream's count.
MEDIA_CEILING = 200_000
#: Tokens of output that reasoning may add beyond the caller's limit.
REASONING_CEILING = 1_000_000
#: The lowest possible bytes per second of audio; a count of more seconds than that is impossible.
MIN_AUDIO_BYTE_RATE = 100
#: Tokens of output below which a call is refused and not clamped, because the answer would be too short to use.
MIN_OUTPUT = 16


class ChatEndpoint(Endpoint[ChatRequest]):
    """Chat and reasoning models."""

    name = "chat"
    capability = Chat
    answers = ChatCompletion
    names_model = True

    # Before the call -------------------------------------------------------------------------------------------------

    def decode(self, body: bytes, settings: Settings) -> ChatRequest:
        return decode_chat_request(body)

    def wants_stream(self, request: ChatRequest) -> bool:
        return bool(request.stream)

    def quote(self, request: ChatRequest, model: Model, body_size: int) -> Quote:
        return _quote(request, chat_prompt(request, factor=model.token_factor), model, body_size)

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        request = ChatRequest(model=model.name, messages=[], max_tokens=size.max_tokens, stream=size.stream)
        return _quote(request, PromptEstimate(text=size.tokens), model, body_size=0)

    def clamp(self, quote: Quote, amount: int) -> Quote | None:
        worst, choices = quote.worst_case, quote.choices
        most = worst.tokens_out // choices

        def output(tokens: int) -> Usage:
            return _with_output(worst, tokens * choices)

        tokens = quote.affordable(amount, output=output, most=most)
        if tokens < min(MIN_OUTPUT, most):
            return None
        return quote.clamped(output(tokens), tokens)

    def limit_output(self, request: ChatRequest, tokens: int) -> ChatRequest:
        given = [name for name in ("max_tokens", "max_completion_tokens") if getattr(request, name) is not None]
        limits = dict.fromkeys(given or ["max_tokens"], tokens)
        fields = request.fields | {name: Raw(b"%d" % tokens) for name in limits}
        return structs.replace(request, fields=fields, **limits)

    # The call --------------------------------------------------------------------------------------------------------

    def attempt(self, adapted: Adapted[ChatRequest]) -> Awaitable[ChatCompletion]:
        candidate = adapted.candidate
        return cast("Chat", candidate.provider).chat(adapted.request, candidate.target)

    def attempt_stream(self, adapted: Adapted[ChatRequest]) -> AsyncIterator[ChatChunk]:
        candidate = adapted.candidate
        return cast("Chat", candidate.provider).stream_chat(adapted.request, candidate.target)

    async def encode(self, call: Call, answer: ChatCompletion, services: Services) -> tuple[bytes, str]:
        if answer.usage is None or not is_possible(answer.usage):
            call.reply.headers["x-gateway-estimated"] = "true"
            used = _estimated(call, quarter_tokens_of(answer))
            answer.usage = _public(used)
        else:
            used = _counted(call, answer.usage)
        call.service_tier = _billed_tier(call, answer.service_tier)
        body = encode_completion(answer, _form(call, services))
        call.used = used
        return body, JSON

    def stream_encoder(self, call: Call, opened: Opened[ChatChunk], services: Services) -> ChatStreamEncoder:
        prompt, factor = call.quote.prompt, call.model.token_factor
        # Not a method of the call: the call refers to the encoder, so that would be a cycle.
        estimate = partial(_estimated_public, prompt, factor)
        encoder = ChatStreamEncoder(_form(call, services), estimate=estimate)
        if call.model.continue_cut:
            opened.rest = Continuation(
                opened,
                call.adapted,
                dispatcher=services.dispatcher,
                attempt=self.attempt_stream,
                tried=call.attempts,
                on_continued=encoder.continue_elsewhere,
            ).chunks()
        return encoder

    def hold_limit(self, call: Call, ledger: Ledger) -> HoldExtension:
        return HoldExtension(call, ledger)

    def checkpoint(self, call: Call, services: Services) -> Slot:
        return services.active_calls.checkpoint(call, _billed_tier(call, call.encoder.used_tier))

    def stream_ended(self, call: Call) -> None:
        call.service_tier = _billed_tier(call, call.encoder.used_tier)

    # The end ---------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        encoder: ChatStreamEncoder | None = call.encoder
        if encoder is None:
            return None
        if encoder.usage is not None and not encoder.continued:
            return _counted(call, encoder.usage)
        if (encoder.content_started and call.committed) or call.outcome == "ok":
            return _estimated(call, encoder.delivered.text_quarter_tokens)
        return None


def _quote(request: ChatRequest, prompt: PromptEstimate, model: Model, body_size: int) -> Quote:
    wanted, choices, tokens = request.max_output, request.n or 1, prompt.tokens
    if wanted is not None:
        _check_output_limit(request, model, wanted)
    if model.context_window is not None:
        _check_window(model.context_window, tokens, wanted or 0)
    reserve = longest = model.reserve_output(wanted)
    limit = None
    if wanted is None and not request.stream:
        # A stream extends its hold; a whole answer cannot, so the cost of the longest one is held.
        longest = model.max_output_tokens or reserve
        if model.hold == "clamp" and model.max_output_tokens is None:
            limit = reserve
    return Quote.of(
        model,
        prompt=Usage(
            in_text=prompt.text,
            in_image=prompt.image,
            in_audio=prompt.audio,
            audio_seconds_in=_seconds(prompt.audio, model),
            estimated=True,
        ),
        worst_case=_worst(request, prompt, longest * choices, model=model),
        # A text token is at least one byte long, so a prompt has no more tokens than its body has bytes.
        ceiling=(
            body_size + MEDIA_CEILING * (1 + prompt.media),
            max(wanted or 0, model.max_output_tokens or 0) * choices + REASONING_CEILING,
        ),
        service_tier=request.service_tier,
        # The rate limit counts the expected tokens: with the longest answer it would admit too few calls.
        tokens=with_safety(tokens) + reserve * choices,
        choices=choices,
        output_limit=limit,
        bounded=wanted is not None or limit is not None,
    )


def _check_output_limit(request: ChatRequest, model: Model, wanted: int) -> None:
    limit = model.max_output_tokens
    if limit is not None and wanted > limit:
        raise OutOfRange(
            f"max_tokens is too large: {wanted}. This model supports at most {limit} completion tokens.",
            code="integer_above_max_value",
            param="max_tokens" if request.max_tokens is not None else "max_completion_tokens",
        )


def _check_window(window: int, estimate: int, output: int) -> None:
    """Refuse a prompt that cannot fit. An estimate may be wrong by a factor of two; then the upstream decides."""
    if estimate // 2 + output > window:
        raise ContextLengthExceeded(
            f"The messages and the requested output exceed this model's context length of {window} tokens.",
            param="messages",
        )


def _seconds(audio: int, model: Model) -> float:
    """Seconds of audio in a prompt, if the price is per second; else 0."""
    return audio / AUDIO_PER_SECOND if audio and model.price.per_second_in else 0.0


def _worst(request: ChatRequest, prompt: PromptEstimate, tokens: int, *, model: Model) -> Usage:
    """The worst usage: the estimate of the prompt with its margin, and `tokens` of output."""
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
        out_audio=tokens if speaks else 0,  # the share of audio is unknown, so all of it counts
        estimated=True,
    )


def _with_output(usage: Usage, tokens: int) -> Usage:
    """`usage` with `tokens` of output, as text or as audio."""
    if usage.out_audio:
        return structs.replace(usage, out_audio=tokens)
    return structs.replace(usage, out_text=tokens)


def _form(call: Call, services: Services) -> AnswerForm:
    """The form of the answer that the caller requested."""
    request = call.request
    return AnswerForm(
        services.ids.completion_id(),
        int(time.time()),
        call.public_model,
        include_usage=request.wants_usage,
        obfuscation=services.settings.server.obfuscation if request.wants_obfuscation else "off",
        legacy_functions=request.legacy_functions,
        service_tier=request.service_tier,
        metadata=request.fields.get("metadata", UNSET) if request.metadata else UNSET,
    )


def _counted(call: Call, reported: CompletionUsage) -> Usage:
    """The upstream's count; audio seconds that it does not report, or that are impossible, are estimated."""
    used, prompt = Usage.of_chat(reported), call.quote.prompt
    seconds = prompt.audio_seconds_in
    if (seconds and not used.audio_seconds_in) or used.audio_seconds_in * MIN_AUDIO_BYTE_RATE > call.body_size:
        return structs.replace(used, audio_seconds_in=seconds, estimated=True)
    return used


def _billed_tier(call: Call, used: Any) -> str | None:
    """The service tier that is charged: the one that the upstream reports."""
    return call.quote.price.billed_tier(call.service_tier, used if isinstance(used, str) else None)


def _estimated(call: Call, quarter_tokens: int) -> Usage:
    """The usage without an upstream count: the estimate of the prompt and what was delivered."""
    tokens = tokens_of(quarter_tokens, factor=call.model.token_factor)
    return structs.replace(call.quote.prompt, out_text=tokens)


def _estimated_public(prompt: Usage, factor: float, quarter_tokens: int) -> CompletionUsage:
    return _public(structs.replace(prompt, out_text=tokens_of(quarter_tokens, factor=factor)))


def _public(usage: Usage) -> CompletionUsage:
    return CompletionUsage(
        prompt_tokens=usage.tokens_in,
        completion_tokens=usage.tokens_out,
        total_tokens=usage.tokens_in + usage.tokens_out,
    )
