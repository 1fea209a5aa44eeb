"""The texts of a call as attributes of its span, if `[telemetry] content` says so: messages with parts, as JSON.

They are read on the event loop, after the answer, and bounded: a longer conversation loses its oldest messages, and a
single text is cut.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

MAX_TEXT = 16_384  # characters of one part
MAX_BYTES = 65_536  # of all messages as JSON
Message = dict[str, Any]


def asked(request: object) -> str:
    """The messages or inputs of a request as JSON; empty where it has none that are texts."""
    messages = getattr(request, "messages", None)
    if messages:
        return _bounded([_message(one) for one in messages])
    texts = getattr(request, "input", None) or getattr(request, "prompt", None)
    if isinstance(texts, str):
        texts = [texts]
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        return ""
    return _bounded([{"role": "user", "parts": [_text(text)]} for text in texts])


def answered(answer: object) -> str:
    """The messages of a whole answer as JSON; empty where it has no texts."""
    choices = getattr(answer, "choices", None) or ()
    return _bounded([{**_message(one.message), "finish_reason": one.finish_reason or ""} for one in choices])


def delivered(text: str, finish: str) -> str:
    """What a stream has delivered, as the message of an answer; `finish` is "" of one that was cut."""
    message = {"role": "assistant", "parts": [_text(text)], "finish_reason": finish or "error"}
    return _bounded([message]) if text else ""


def _text(text: str) -> Message:
    return {"type": "text", "content": text[:MAX_TEXT]}


def _message(message: Any) -> Message:
    content, parts = getattr(message, "content", None), list[Message]()
    if isinstance(content, str):
        kind = "tool_call_response" if hasattr(message, "tool_call_id") else "text"
        parts.append(_text(content) if kind == "text" else _response(message, content))
    elif isinstance(content, Iterable):
        parts += (_part(part) for part in content)
    for call in _given(getattr(message, "tool_calls", None)):
        function = getattr(call, "function", None) or getattr(call, "custom", None)
        arguments = getattr(function, "arguments", None) or getattr(function, "input", "")
        name = getattr(function, "name", "")
        parts.append({"type": "tool_call", "id": call.id, "name": name, "arguments": str(arguments)[:MAX_TEXT]})
    return {"role": _role(message), "parts": parts}


def _role(message: Any) -> str:
    """The role: a field of answers, the tag of the classes of requests."""
    role = getattr(message, "role", None)
    return role if isinstance(role, str) else str(type(message).__struct_config__.tag or "")


def _response(message: Any, content: str) -> Message:
    return {"type": "tool_call_response", "id": message.tool_call_id, "response": content[:MAX_TEXT]}


def _part(part: Any) -> Message:
    text = getattr(part, "text", None)
    if isinstance(text, str):
        return _text(text)
    return {"type": str(type(part).__struct_config__.tag or "other")}  # an image, audio, a file: its kind only


def _given(value: Any) -> Sequence[Any]:
    return () if value is UNSET or value is None else value


def _bounded(messages: list[Message]) -> str:
    """The JSON of the newest messages that fit."""
    kept: list[bytes] = []
    size = 2
    for message in reversed(messages):
        text = msgspec.json.encode(message)
        size += len(text) + 1
        if size > MAX_BYTES:
            break
        kept.append(text)
    return (b"[" + b",".join(reversed(kept)) + b"]").decode() if kept else ""
