"""Earlier messages, as a server with an accent wants them: `developer` as `system`, reasoning where it may come back,
ids of tool calls in the one form it takes.

`said_there(request, raw, quirks, …)` gives the messages to send. They are taken apart only if there is something to
change, and then only their top level. Sharp edge: what is changed is a copy; the request may go elsewhere, too.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway import ChatRequest
from gateway.schemas.chat_messages import (
    AssistantMessage,
    AudioPart,
    DeveloperMessage,
    Message,
    ToolMessage,
    UserMessage,
)

from .presets import Quirks

REASONING = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks")

_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_messages = msgspec.json.Decoder(list[dict[str, Raw]])
_parts = msgspec.json.Decoder(list[dict[str, Raw]])
_encoder = msgspec.json.Encoder()

Fields = dict[str, Raw]


def said_there(request: ChatRequest, raw: Raw, quirks: Quirks, *, thinks: bool) -> Raw:
    """The messages to send in place of `raw`; `thinks`: the answer will be thought about, and may call tools."""
    changes = [_change(message, quirks, thinks=thinks) for message in request.messages]
    if not any(changes):
        return raw
    messages = _messages.decode(raw)
    for message, typed, change in zip(messages, request.messages, changes, strict=True):
        if change is not None:
            change(message, typed)
    return Raw(_encoder.encode(messages))


Change = Callable[[Fields, Any], None]


def _change(message: Message, quirks: Quirks, *, thinks: bool) -> Change | None:
    """What has to be done about a message, if anything."""
    match message:
        case DeveloperMessage() if not quirks.developer_role:
            return _make_system
        case AssistantMessage():
            return _change_of_answer(message, quirks, thinks=thinks)
        case ToolMessage() if quirks.short_call_ids and not _SHORT_ID.fullmatch(message.tool_call_id):
            return _shorten_answered_id
        case UserMessage(content=list(parts)) if quirks.flat_audio and any(isinstance(p, AudioPart) for p in parts):
            return _flatten_audio
    return None


def _change_of_answer(message: AssistantMessage, quirks: Quirks, *, thinks: bool) -> Change | None:
    reasoned = message.reasoning_content is not None or message.reasoning is not None
    reasoned = reasoned or message.reasoning_details is not UNSET or message.thinking_blocks is not UNSET
    renames = reasoned and quirks.reasoning_back != "as_sent"
    shortens = quirks.short_call_ids and any(not _SHORT_ID.fullmatch(call.id) for call in message.tool_calls or ())
    unsigns = not quirks.keeps_signatures and any(_is_signed(call) for call in message.tool_calls or ())
    keys = quirks.answer_keys
    if not renames and not shortens and not unsigns and keys is None:
        return None

    def change(fields: Fields, typed: AssistantMessage) -> None:
        if renames:
            _rename_reasoning(fields, typed, _name_of_reasoning(quirks, thinks=thinks))
        if unsigns:
            _leave_out_signatures(fields)
        if shortens:
            _shorten_call_ids(fields)
        if keys is not None:
            for key in fields.keys() - keys:
                del fields[key]

    return change


def _name_of_reasoning(quirks: Quirks, *, thinks: bool) -> str:
    """The member in which an answer has its reasoning there; empty where it has none."""
    if quirks.reasoning_back == "as_reasoning":
        return "reasoning"
    return "reasoning_content" if quirks.reasoning_back == "with_tools" and thinks else ""


def _is_signed(call: Any) -> bool:
    """Whether a call of a tool has a signature of the vendor that made it, such as Google."""
    return getattr(call, "extra_content", UNSET) is not UNSET


def _leave_out_signatures(fields: Fields) -> None:
    calls = _parts.decode(fields["tool_calls"])
    for call in calls:
        call.pop("extra_content", None)
    fields["tool_calls"] = Raw(_encoder.encode(calls))


def _make_system(fields: Fields, _: Message) -> None:
    fields["role"] = Raw(b'"system"')


def _rename_reasoning(fields: Fields, message: AssistantMessage, name: str) -> None:
    """Keep the text of the reasoning under `name`; without one, nothing of it."""
    for key in REASONING:
        fields.pop(key, None)
    text = message.reasoning_content or message.reasoning
    if name and text:
        fields[name] = _raw(text)


def _shorten_call_ids(fields: Fields) -> None:
    calls = _parts.decode(fields["tool_calls"])
    for call in calls:
        call["id"] = _raw(short_call_id(msgspec.json.decode(call["id"])))
    fields["tool_calls"] = Raw(_encoder.encode(calls))


def _shorten_answered_id(fields: Fields, message: ToolMessage) -> None:
    fields["tool_call_id"] = _raw(short_call_id(message.tool_call_id))


def short_call_id(id: str) -> str:
    """Nine letters and digits that stand for `id`, always the same ones."""
    if _SHORT_ID.fullmatch(id):
        return id
    number = int.from_bytes(hashlib.sha256(id.encode()).digest()[:16], "big")
    return "".join(_ALPHABET[number // 62**position % 62] for position in range(9))


def _flatten_audio(fields: Fields, message: UserMessage) -> None:
    parts = _parts.decode(fields["content"])
    for part, typed in zip(parts, message.content, strict=True):
        if isinstance(typed, AudioPart):
            part["input_audio"] = _raw(typed.input_audio.data)
    fields["content"] = Raw(_encoder.encode(parts))


def _raw(text: str) -> Raw:
    return Raw(_encoder.encode(text))
