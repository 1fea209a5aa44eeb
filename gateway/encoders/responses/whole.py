"""Encodes whole answers of any provider as a response object (docs/api.md, "POST /v1/responses")."""

from __future__ import annotations

from msgspec import UNSET, Raw

from gateway.encoders.chat_form import AnswerForm, call_id, finish_reason
from gateway.encoders.responses.custom_input import CustomInput
from gateway.encoders.responses.document import ResponseDocument
from gateway.encoders.responses.items import (
    CalledTool,
    call_item,
    flat_annotations,
    image_item,
    image_results,
    item_id,
    logprobs_of,
    message_item,
    raw,
    reasoning_item,
    refusal_part,
    text_part,
)
from gateway.encoders.responses.native import with_our_id, with_our_values
from gateway.encoders.responses.stream import ENDS
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.chat_request import ChatRequest
from gateway.schemas.chat_response import ChatCompletion, ChatMessage, Choice, ToolCall
from gateway.schemas.native_request import NativeCompletion
from gateway.schemas.reasoning_state import ReasoningState
from gateway.schemas.responses.native import ResponsesNative


def encode_response(answer: ChatCompletion, form: AnswerForm, request: ChatRequest) -> bytes:
    """The JSON of a whole answer; UpstreamInvalidResponse if it has no choice, or no valid finish."""
    if not answer.choices:
        raise UpstreamInvalidResponse(detail="no choices")
    document = ResponseDocument(form, request)
    if isinstance(answer, NativeCompletion):
        if request.native is not None and request.native.compacts == "document":
            return with_our_id(answer.document, document, answer.usage)
        return with_our_values(answer.document, document, answer.usage)
    choice = min(answer.choices, key=lambda one: one.index)
    message = choice.message
    has_content = bool(message.content or message.refusal or message.reasoning_content or message.images)
    reason = finish_reason(choice.finish_reason or "", called=bool(message.tool_calls), has_content=has_content)
    status = ENDS.get(reason, "completed")
    items = _Items(document.suffix, request, form.model)
    items.add(choice, status)
    return document.write(status, items.written, usage=answer.usage, reason=reason, tier=answer.service_tier)


class _Items:
    """Writes the items of one answer in their order."""

    def __init__(self, suffix: str, request: ChatRequest, model: str) -> None:
        assert isinstance(request.native, ResponsesNative)
        self.written: list[bytes] = []
        self._suffix = suffix
        self._native = request.native
        self._models = tuple(dict.fromkeys((request.native.asked, model)))

    def add(self, choice: Choice, status: str) -> None:
        """Add what a choice has."""
        message = choice.message
        self._add_reasoning(message)
        parts = []
        if message.content:
            parts.append(
                text_part(message.content, flat_annotations(message.annotations), logprobs_of(choice.logprobs))
            )
        if message.refusal:
            parts.append(refusal_part(message.refusal))
        if parts:
            self.written.append(message_item(self._id("msg"), parts, status))
        for result in image_results(message.images):
            self.written.append(image_item(self._id("ig"), "completed", result))
        for call in message.tool_calls or ():
            self._add_call(call, status)

    def _id(self, prefix: str) -> str:
        return item_id(prefix, self._suffix, len(self.written))

    def _add_reasoning(self, message: ChatMessage) -> None:
        blocks, details = raw(message.thinking_blocks), raw(message.reasoning_details)
        if message.reasoning_content or blocks is not UNSET or details is not UNSET:
            state = ReasoningState(self._models, blocks, details)
            self.written.append(reasoning_item(self._id("rs"), message.reasoning_content or "", state))

    def _add_call(self, call: ToolCall, status: str) -> None:
        id_, function = call_id(call.id), call.function or call.custom
        name = (function.name if function else "") or ""
        given = (call.function.arguments if call.function else call.custom.input if call.custom else "") or ""
        if isinstance(call.extra_content, Raw):
            state = ReasoningState(self._models, calls={id_: call.extra_content})
            self.written.append(reasoning_item(self._id("rs"), "", state))
        tool = CalledTool.of(name, self._native)
        text = _input(given) if tool.is_custom else given or "{}"
        prefix = "ctc" if tool.is_custom else "fc"
        self.written.append(call_item(self._id(prefix), id_, tool, text, status=status))


def _input(arguments: str) -> str:
    read = CustomInput()
    read.feed(arguments)
    read.end()
    return read.text
