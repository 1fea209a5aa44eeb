"""Encodes whole answers in Anthropic's dialect (docs/api.md, "POST /v1/messages")."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.encoders.chat_completion import normalize_completion
from gateway.encoders.chat_form import AnswerForm
from gateway.encoders.messages.form import STOP_REASONS, message_id, messages_usage, sealed_call, with_kept
from gateway.encoders.tool_arguments import arguments_object
from gateway.schemas.answer_surrogates import decode_whole, encode_whole
from gateway.schemas.chat_response import ChatCompletion, ChatMessage, CompletionUsage, ToolCall
from gateway.schemas.native_request import NativeCompletion

_table = msgspec.json.Decoder(dict[str, Raw])


def encode_message(answer: ChatCompletion, form: AnswerForm, *, model: str = "") -> bytes:
    """The JSON document of a whole answer; UpstreamInvalidResponse if it has no content, or no valid end.

    `model` is the requested one.
    """
    normalize_completion(answer, form)
    usage = messages_usage((answer.usage or CompletionUsage()).public(), answer.service_tier)
    if isinstance(answer, NativeCompletion):
        members = decode_whole(_table, answer.document)
        document: dict[str, Any] = dict(members)
        upstream = msgspec.json.decode(document["usage"]) if "usage" in document else None
        document |= {"id": message_id(form), "model": form.model, "usage": with_kept(usage, upstream)}
        return encode_whole(document)
    choice = answer.choices[0]
    return encode_whole(
        {
            "id": message_id(form),
            "type": "message",
            "role": "assistant",
            "model": form.model,
            "content": _content(choice.message, (model, form.model)),
            "stop_reason": STOP_REASONS.get(choice.finish_reason or "", "end_turn"),
            "stop_sequence": None,
            "usage": usage,
        }
    )


def _content(message: ChatMessage, models: tuple[str, ...]) -> list[Any]:
    """The blocks of an answer: thinking, text, calls."""
    blocks = _thinking(message.thinking_blocks, message.reasoning_content)
    blocks += [{"type": "text", "text": text} for text in (message.content, message.refusal) if text]
    for call in message.tool_calls or ():
        if isinstance(call.extra_content, Raw):
            blocks.append(sealed_call(call.id, call.extra_content, models))
        blocks.append(_tool_use(call))
    return blocks


def _thinking(raw: Raw | UnsetType, text: str | UnsetType | None) -> list[Any]:
    """The thinking with its signatures, or without them where the upstream gave none."""
    if raw is not UNSET:
        blocks = msgspec.json.decode(raw)
        if isinstance(blocks, list) and blocks:
            return blocks
    return [{"type": "thinking", "thinking": text, "signature": ""}] if text else []


def _tool_use(call: ToolCall) -> dict[str, Any]:
    function = call.function or None
    name = (function.name or "") if function is not None else ""
    arguments = (function.arguments or "") if function is not None else ""
    return {"type": "tool_use", "id": call.id, "name": name, "input": arguments_object(arguments)}
