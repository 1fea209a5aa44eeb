"""Encodes whole chat answers by the rules of the wire format (docs/api.md, "POST /v1/chat/completions")."""

from __future__ import annotations

from msgspec import UNSET

from gateway.billing.delivered import Delivered
from gateway.encoders.chat_form import AnswerForm, call_id, finish_reason, service_tier
from gateway.encoders.chat_media import count_message
from gateway.encoders.chat_surrogates import make_whole
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.chat_response import ChatCompletion, ChatMessage, ToolCall


def encode_completion(answer: ChatCompletion, form: AnswerForm) -> bytes:
    """The JSON document of a whole answer; UpstreamInvalidResponse if it has no choice, or no valid finish.

    Its usage is encoded as it is: `CompletionUsage.public` removes the fields that a client must not see.
    """
    normalize_completion(answer, form)
    return encode_whole(answer)


def normalize_completion(answer: ChatCompletion, form: AnswerForm) -> None:
    """Bring the answer of any provider into the form of the wire; raises as `encode_completion` does."""
    if not answer.choices:
        raise UpstreamInvalidResponse(detail="no choices")
    answer.id, answer.object, answer.created, answer.model = form.id, "chat.completion", form.created, form.model
    answer.service_tier = service_tier(answer.service_tier, form.service_tier)
    answer.metadata = form.metadata
    if len(answer.choices) > 1:
        answer.choices.sort(key=lambda choice: choice.index)
    for position, choice in enumerate(answer.choices):
        choice.index = position
        message = choice.message
        _normalize_message(message, legacy=form.legacy_functions)
        called = bool(message.tool_calls or message.function_call)
        has_content = bool(message.content or message.refusal or message.reasoning_content) or (
            message.audio is not UNSET or message.images is not UNSET
        )
        choice.finish_reason = finish_reason(
            choice.finish_reason or "", called=called, has_content=has_content, legacy=form.legacy_functions
        )


def _normalize_message(message: ChatMessage, *, legacy: bool) -> None:
    message.role = "assistant"
    if message.annotations is None:
        message.annotations = []
    if message.function_call is None:
        message.function_call = UNSET
    if not message.reasoning_content:
        message.reasoning_content = UNSET
    if not message.tool_calls:
        message.tool_calls = UNSET
        return
    message.content = message.content or None
    for call in message.tool_calls:
        _normalize_call(call)
    first = message.tool_calls[0].function
    if legacy and first:
        message.function_call, message.tool_calls = first, UNSET


def _normalize_call(call: ToolCall) -> None:
    call.id = call_id(call.id)
    call.type = "custom" if call.custom else "function"
    if call.function:
        call.function.arguments = call.function.arguments or "{}"


def delivered_of(answer: ChatCompletion, *, audio_rate: int) -> Delivered:
    """Our own count of a whole answer, whose surrogates are joined; `audio_rate` is in bytes a second."""
    try:
        return _delivered_of(answer, audio_rate)
    except UnicodeEncodeError:
        make_whole(answer)
        return _delivered_of(answer, audio_rate)


def _delivered_of(answer: ChatCompletion, audio_rate: int) -> Delivered:
    delivered = Delivered()
    for choice in answer.choices:
        count_message(choice.message, delivered, audio_rate=audio_rate)
    return delivered
