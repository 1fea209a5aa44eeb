"""Calls of chat models, whole and streamed, in any dialect (`gateway.api.endpoints.chat_dialect`)."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from typing import Any, cast

from msgspec import UNSET, structs

from gateway.api.endpoints.chat_continuation import continuation_of
from gateway.api.endpoints.chat_dialect import ChatCompletions, ChatDialect
from gateway.api.endpoints.chat_output_limit import DEFAULT_LIMIT, LEAST_OUTPUT, MIN_OUTPUT, limit_output
from gateway.api.endpoints.chat_usage import ChatCounting, counted_by_time, plain_count, public
from gateway.api.endpoints.vendor_input import vendor_uses, with_vendor_input
from gateway.billing.delivered import Delivered
from gateway.billing.quote import Quote
from gateway.billing.token_estimate import PromptEstimate, chat_prompt, with_safety
from gateway.billing.usage import Usage, is_possible, tokens_of
from gateway.catalog import Model
from gateway.encoders.answer_encoder import AnswerEncoder
from gateway.encoders.chat_completion import delivered_of
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.chat_media import PCM_RATE, RATES, USUAL_RATE
from gateway.errors import ContextLengthExceeded, GatewayError, OutOfRange
from gateway.http_server.reply import JSON
from gateway.inference.call import Call
from gateway.inference.endpoint import Endpoint, RequestSize
from gateway.inference.hold_extension import HoldExtension
from gateway.inference.services import Services
from gateway.ledger import Ledger
from gateway.ledger.inflight_checkpoint import Slot
from gateway.plugins.isolation import check_stream
from gateway.plugins.provider import Chat
from gateway.routing.continuation import Continuation
from gateway.routing.dispatcher import Opened
from gateway.routing.first_token import prompt
from gateway.routing.hidden_reasoning import effort_of, may_reason
from gateway.routing.request_adaptation import Adapted
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatChunk, ChatCompletion, CompletionUsage
from gateway.schemas.duplicate_keys import Examined
from gateway.schemas.media_addresses import MediaAddress, media_addresses, with_media
from gateway.schemas.vendor_tools import NO_USES, VendorUses

#: Reasoning counts as hidden if it exceeds the shown part times a factor, and tokens: the part is an estimate.
REASONING_SHOWN = 2
REASONING_UNCERTAIN = 64
#: Values of `service_tier` that every price covers.
USUAL_TIERS = frozenset({None, "auto", "default"})


class ChatEndpoint(Endpoint[ChatRequest]):
    """Chat and reasoning models."""

    capability = Chat
    answers = ChatCompletion
    names_model = True
    permission = "chat"
    estimate = staticmethod(chat_prompt)  # the tokens of a prompt

    def __init__(self, dialect: ChatDialect | None = None) -> None:
        self.dialect = dialect or ChatCompletions()
        self.name, self.prompt_param = self.dialect.name, self.dialect.prompt_param

    # Before the call -------------------------------------------------------------------------------------------------

    def decode(self, body: bytes | Examined, account: str, services: Services) -> ChatRequest:
        return self.dialect.decode(body)

    def wants_stream(self, request: ChatRequest) -> bool:
        return bool(request.stream)

    def media_addresses(self, request: ChatRequest) -> Sequence[MediaAddress]:
        return media_addresses(request)

    def with_media(self, request: ChatRequest, contents: Mapping[str, bytes]) -> ChatRequest:
        return with_media(request, contents)

    def for_model(self, request: ChatRequest, model: Model) -> ChatRequest:
        tier = request.service_tier
        if tier in USUAL_TIERS or tier in model.price.service_tier_multiplier:
            return request
        # The upstream would charge this tier at a price of its own, and the caller would pay the usual one.
        return request.drop("service_tier")

    def quote(
        self, request: ChatRequest, model: Model, body_size: int, adapted: Sequence[Adapted[ChatRequest]] = ()
    ) -> Quote:
        prompt = self.estimate(request, factor=model.token_factor, rules=model.media_rules)
        hidden = False
        for one in adapted:
            effort = effort_of(one.request) if request.extra else request.reasoning_effort
            if one.candidate.reasoning.expected(effort):
                hidden = True
                break
        is_plain = request.native is None and request.web_search_options is None
        uses = NO_USES if is_plain else vendor_uses(request, model, adapted)
        return _quote(request, prompt, model, hidden=hidden, adapted=adapted, uses=uses)

    def quote_size(self, model: Model, size: RequestSize) -> Quote:
        request = ChatRequest(model=model.name, messages=[], max_tokens=size.max_tokens, stream=size.stream)
        hidden = model.reasoning
        if hidden is None:
            hidden = any(may_reason(one.target.model) for one in model.targets)
        return _quote(request, PromptEstimate(text=size.tokens), model, hidden=hidden)

    def lowerable(self, quote: Quote) -> Quote:
        tokens = min(quote.least_output * quote.choices, quote.worst_case.tokens_out)
        least = _with_output(quote.worst_case, tokens)
        return structs.replace(quote, least=quote.price.worst(least, service_tier=quote.service_tier))

    def clamp(self, quote: Quote, amount: int) -> Quote | None:
        worst, choices = quote.worst_case, quote.choices
        most = worst.tokens_out // choices

        def output(tokens: int) -> Usage:
            return _with_output(worst, tokens * choices)

        tokens = quote.affordable(amount, output=output, most=most)
        if tokens < min(MIN_OUTPUT, most):
            return None
        return quote.clamped(output(tokens), tokens)

    def limit_output(self, adapted: Adapted[ChatRequest], tokens: int) -> Adapted[ChatRequest]:
        return limit_output(adapted, tokens)

    # The call --------------------------------------------------------------------------------------------------------

    def attempt(self, adapted: Adapted[ChatRequest]) -> Awaitable[ChatCompletion]:
        candidate = adapted.candidate
        return cast("Chat", candidate.provider).chat(adapted.request, candidate.target)

    def attempt_stream(self, adapted: Adapted[ChatRequest]) -> AsyncIterator[ChatChunk]:
        candidate = adapted.candidate
        stream = cast("Chat", candidate.provider).stream_chat(adapted.request, candidate.target)
        seconds = candidate.model.first_token_timeout
        if not seconds:
            return stream
        check_stream(stream)
        return prompt(stream, seconds)

    async def encode(self, call: Call, answer: ChatCompletion, services: Services) -> tuple[bytes, str]:
        usage, delivered = answer.usage, self.delivered(call, answer)
        used = plain_count(call, usage, delivered) if isinstance(usage, CompletionUsage) else None
        if used is None:
            used = _count(call, answer, delivered)
        sent = _sent_tier(call)
        call.service_tier = _billed_tier(call, sent, answer.service_tier)
        body = self.dialect.encode(answer, _whole_form(call, services, sent), call.request)
        call.used = used
        return body, JSON

    def delivered(self, call: Call, answer: ChatCompletion) -> Delivered:
        """Our own count of a whole answer."""
        audio = call.request.audio
        return delivered_of(answer, audio_rate=PCM_RATE if audio is None else RATES.get(audio.format, USUAL_RATE))

    def stream_encoder(self, call: Call, opened: Opened[ChatChunk], services: Services) -> AnswerEncoder:
        form, count = _stream_form(call, services), ChatCounting.of(call).public
        return self.dialect.stream_encoder(form, call.request, count)

    def continuation(self, call: Call, opened: Opened[ChatChunk], services: Services) -> Continuation | None:
        if call.model.continue_cut == "off" or len(call.adapted) < 2:
            return None
        return continuation_of(call, opened, services, self.attempt_stream)

    def hold_limit(self, call: Call, ledger: Ledger) -> HoldExtension:
        return HoldExtension(call, ledger)

    def checkpoint(self, call: Call, services: Services) -> Slot:
        return services.active_calls.checkpoint(call, _billed_tier(call, _sent_tier(call), call.encoder.used_tier))

    def stream_ended(self, call: Call) -> None:
        call.service_tier = _billed_tier(call, _sent_tier(call), call.encoder.used_tier)

    # The end ---------------------------------------------------------------------------------------------------------

    def usage(self, call: Call) -> Usage | None:
        encoder: AnswerEncoder | None = call.encoder
        counted = encoder is not None and encoder.counted
        # While a continuation connects, no upstream has the request: the delivered part is charged.
        if call.output_rate and call.outcome == "ok" and not counted and call.sending.is_sent():
            return counted_by_time(call)
        if encoder is None:
            return None
        complete = encoder.finished and call.outcome == "ok"
        # A caller who left before any content pays for the prompt, as far as the upstream has counted it.
        left = call.client_gone and call.outcome == "ok" and encoder.usage is not None
        if not (complete or left or (encoder.content_started and call.committed)):
            return None
        counting = ChatCounting.of(call)
        used = call.accept_count(counting.count(encoder.usage, encoder.delivered, encoder.counted))
        if encoder.usage is not None and complete:
            _learn(call, encoder.usage, encoder.delivered)
        return used

    def error_frame(self, error: GatewayError, call: Call) -> bytes:
        return self.dialect.error_frame(error, call)


def _quote(
    request: ChatRequest,
    prompt: PromptEstimate,
    model: Model,
    *,
    hidden: bool,
    adapted: Sequence[Adapted[ChatRequest]] = (),
    uses: VendorUses = NO_USES,
) -> Quote:
    """The quote. `hidden`: a candidate may reason without showing it. `uses`: of tools that an upstream runs."""
    wanted, choices, tokens = request.max_output, request.n or 1, prompt.tokens
    if wanted is not None:
        _check_output_limit(request, model, wanted)
    if model.context_window is not None:
        _check_window(model.context_window, tokens, wanted or 0)
    reserve = held = model.reserve_output(wanted)
    share, least, sent = (1, MIN_OUTPUT, None) if model.hold == "clamp" else (0, 0, None)
    whole = wanted is None and (hidden or not request.stream) and not model.price.output_is_free
    if whole:  # the whole answer is held, so it gets a limit
        held, sent = _added_limit(model, tokens, _own_limit(adapted))
        share, least = (share, least) if share else (2, LEAST_OUTPUT)
    worst, added = with_vendor_input(_worst(request, prompt, held * choices, model=model), uses, model)
    return Quote.of(
        model,
        prompt=_estimated(prompt, model),
        worst_case=worst,
        service_tier=request.service_tier,
        # The rate limit counts the expected tokens: with the longest answer it would admit too few calls.
        tokens=with_safety(tokens) + reserve * choices,
        choices=choices,
        output_limit=sent,
        bounded=wanted is not None or whole,
        hidden=hidden,
        share=share,
        least_output=least,
        documents=prompt.document,
        vendor_input=added,
    )


def _estimated(prompt: PromptEstimate, model: Model) -> Usage:
    """The estimated prompt as a usage."""
    if not prompt.media:
        return Usage(in_text=prompt.text, estimated=True)
    return Usage(
        in_text=prompt.text,
        in_image=prompt.image,
        in_audio=prompt.audio,
        audio_seconds_in=_seconds(prompt.audio, model),
        estimated=True,
    )


def _added_limit(model: Model, prompt: int, own: int | None) -> tuple[int, int | None]:
    """The output limit of a request without one, and the limit to send: none if the candidates send a lower one."""
    limit = model.max_output_tokens or DEFAULT_LIMIT
    if model.context_window is not None:
        window = model.context_window
        # The estimate may be far too high. An upstream that lacks the room refuses the limit, and it is lowered then.
        limit = min(limit, max(min(LEAST_OUTPUT, window // 2), window - with_safety(prompt)))
    return (limit, limit) if own is None or own > limit else (own, None)


def _own_limit(adapted: Sequence[Adapted[ChatRequest]]) -> int | None:
    """The highest output limit that the candidates send by themselves; None if one sends none, or without any."""
    if not adapted:
        return None
    highest = 0
    for one in adapted:
        limit = cast("Chat", one.candidate.provider).output_limit(one.request, one.candidate.target)
        if limit is None:
            return None
        highest = max(highest, limit)
    return highest


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
    return audio / model.media_rules.audio if audio and model.price.per_second_in else 0.0


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


def _count(call: Call, answer: ChatCompletion, delivered: Delivered) -> Usage:
    """The usage of a whole answer, in which the client then sees the same."""
    reported = answer.usage if answer.usage is not None and is_possible(answer.usage) else None
    used = call.accept_count(ChatCounting.of(call).count(reported, delivered, True))
    if reported is not None and reported.completion_tokens_details.reasoning_tokens:
        _learn(call, reported, delivered)
    if reported is None or call.fault:
        call.reply.headers["x-gateway-estimated"] = "true"
        answer.usage = public(used)
    else:
        answer.usage = reported.public()
    return used


def _whole_form(call: Call, services: Services, sent_tier: str | None) -> AnswerForm:
    """The form of a whole answer that the caller requested."""
    request = call.request
    return AnswerForm(  # by position: by name it takes 0.3 µs more
        services.ids.completion_id(call.request_id),
        int(time.time()),
        call.public_model,
        False,  # include_usage and
        "upstream",  # obfuscation: of streams
        request.functions is not None,
        "default" if "service_tier" in request.dropped else sent_tier,
        request.fields.get("metadata", UNSET) if request.metadata else UNSET,
    )


def _stream_form(call: Call, services: Services) -> AnswerForm:
    """The form of a stream that the caller requested."""
    request = call.request
    return structs.replace(
        _whole_form(call, services, _sent_tier(call)),
        include_usage=request.wants_usage,
        obfuscation=services.settings.server.limits.obfuscation if request.wants_obfuscation else "off",
    )


def _billed_tier(call: Call, sent: str | None, used: Any) -> str | None:
    """The service tier that is charged: the one that the upstream reports, or else the one that it was sent."""
    price = call.quote.price
    if not price.service_tier_multiplier:
        return sent
    return price.billed_tier(sent, used if isinstance(used, str) else None)


def _sent_tier(call: Call) -> str | None:
    """The requested service tier, or "default" where the provider of the last attempt takes none."""
    asked: str | None = call.request.service_tier
    if asked is None or not call.attempts:
        return asked
    served = call.attempts[-1]
    return next((one.request.service_tier for one in call.adapted if one.candidate is served), asked) or "default"


def _learn(call: Call, reported: CompletionUsage, delivered: Delivered) -> None:
    """Mark a target that charges much more reasoning than it has shown."""
    tokens = reported.completion_tokens_details.reasoning_tokens
    if tokens and call.attempts:
        seen = tokens_of(delivered.reasoning_quarter_tokens, factor=call.model.token_factor)
        if tokens > REASONING_SHOWN * seen + REASONING_UNCERTAIN:
            candidate = call.attempts[-1]
            sent = next((one.request for one in call.adapted if one.candidate is candidate), call.request)
            candidate.reasoning.learn(candidate.target, effort_of(sent))
