"""The slow path: a chunk or completion that is not quite OpenAI's, rewritten so that the typed decoders take it.

`repaired(data, "delta")` or `(data, "message")` returns a document that has only known keys with possible values:
content as a list of parts becomes text and reasoning, arguments given as objects become JSON text, numbers given as
text become numbers, and what cannot be understood is left out. JSON as Python writes it is read, too: NaN, infinities,
and surrogates, which stay in the texts of messages. Sharp edge: the result may still be refused; then it is
no answer.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec

from gateway.schemas.answer_surrogates import WaitingSurrogates, encode_whole, whole, whole_values

from .._shared.fitting import BOM

_TEXTS = ("role", "refusal", "reasoning_content", "reasoning", "thinking")
_LEAST_LOGPROB = -9999.0  # what OpenAI writes for a token that is next to impossible
_OBJECTS = ("audio", "annotations", "reasoning_details", "thinking_blocks", "images")


def repaired(data: bytes, inner: str) -> dict[str, Any]:
    """`data` decoded and put right; raises msgspec's errors, or ValueError, when it is not a JSON object."""
    document = _read(data)
    if isinstance(document, list) and len(document) == 1:
        document = document[0]  # some gateways wrap an error in an array
    if not isinstance(document, dict):
        raise ValueError("not an object")
    choices = document.get("choices")
    if isinstance(choices, dict):
        choices = [choices]
    out: dict[str, Any] = {
        "choices": [
            _choice(choice, position, inner)
            for position, choice in enumerate(choices if isinstance(choices, list) else [])
            if isinstance(choice, dict)
        ]
    }
    for name in ("system_fingerprint", "service_tier", "obfuscation"):
        if isinstance(document.get(name), str):
            out[name] = document[name]
    for name in ("usage", "error", "x_groq", "moderation", "metadata"):
        if document.get(name) is not None:
            out[name] = document[name]
    if document.get("object") == "error" and "error" not in out:
        out["error"] = document
    return out


def _read(data: bytes) -> Any:
    data = data.removeprefix(BOM)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return json.loads(data.decode("utf-8", "replace"), parse_constant=_constant)


def _constant(name: str) -> float | None:
    return _LEAST_LOGPROB if name == "-Infinity" else None


def keep_surrogates_in_texts(out: dict[str, Any], inner: str, surrogates: WaitingSurrogates | None) -> None:
    """Put whole characters into all that is `repaired`, except for the texts of messages, which encoders join.

    `surrogates` has those at the ends of texts in earlier chunks, by place in the document; None for a whole answer.
    """
    for choice in out["choices"]:
        message = choice[inner]
        for name in _OBJECTS:
            if name == "audio" and isinstance(message.get(name), dict):
                message[name] = _audio(message[name])
            elif name in message and surrogates is not None:
                message[name] = _joined(message[name], surrogates, (choice["index"], name))
            elif name in message:
                message[name] = whole_values(message[name])
        choice["logprobs"] = whole_values(choice["logprobs"])
    for name in out:
        if name != "choices":
            out[name] = whole_values(out[name])


def _audio(audio: dict[str, Any]) -> dict[str, Any]:
    """The audio of a message; its transcript is a text."""
    transcript = audio.get("transcript")
    return {**whole_values(audio), **({"transcript": transcript} if isinstance(transcript, str) else {})}


def _joined(value: Any, surrogates: WaitingSurrogates, place: tuple[str | int, ...]) -> Any:
    """`value` with whole characters only: a high surrogate at the end of a text waits in `surrogates`."""
    if isinstance(value, dict):
        return {whole(name): _joined(item, surrogates, (*place, name)) for name, item in value.items()}
    if isinstance(value, list):
        return [_joined(item, surrogates, (*place, position)) for position, item in enumerate(value)]
    return surrogates.join(place, value) if isinstance(value, str) else value


def _choice(choice: dict[str, Any], position: int, inner: str) -> dict[str, Any]:
    index, finish = _number(choice.get("index")), choice.get("finish_reason")
    message = choice.get(inner)
    return {
        "index": position if index is None else index,
        inner: _message(message) if isinstance(message, dict) else {},
        "logprobs": choice.get("logprobs") if isinstance(choice.get("logprobs"), dict) else None,
        "finish_reason": str(finish) if finish is not None else None,
    }


def _message(message: dict[str, Any]) -> dict[str, Any]:
    out = {name: message[name] for name in _TEXTS if isinstance(message.get(name), str)}
    out.update({name: message[name] for name in _OBJECTS if isinstance(message.get(name), dict | list)})
    content = message.get("content")
    if isinstance(content, list | dict):
        text, reasoning = _parts(content)
        out["content"] = text
        if reasoning:
            out["reasoning_content"] = reasoning
    elif content is not None:
        out["content"] = str(content)
    calls = message.get("tool_calls")
    if isinstance(calls, dict):
        calls = [calls]
    if isinstance(calls, list):
        out["tool_calls"] = [_call(call) for call in calls if isinstance(call, dict)]
    if isinstance(message.get("function_call"), dict):
        out["function_call"] = _function(message["function_call"], "arguments")
    return out


def _parts(content: Any) -> tuple[str, str]:
    """Text and reasoning of a content given as parts, as Mistral's reasoning models do."""
    text: list[str] = []
    reasoning: list[str] = []
    for part in content if isinstance(content, list) else [content]:
        if isinstance(part, str):
            text.append(part)
        elif isinstance(part, dict) and "thinking" in part:
            reasoning.append(_plain(part["thinking"]))
        elif isinstance(part, dict):
            text.append(_plain(part.get("text")))
    return "".join(text), "".join(reasoning)


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return "".join(_plain(item) for item in value)
    if isinstance(value, dict):
        return _plain(value.get("text"))
    return value if isinstance(value, str) else ""


def _call(call: dict[str, Any]) -> dict[str, Any]:
    out: dict[str, Any] = {}
    index = _number(call.get("index"))
    if index is not None:
        out["index"] = index
    if call.get("id") is not None:
        out["id"] = str(call["id"])
    if isinstance(call.get("type"), str):
        out["type"] = call["type"]
    for name, payload in (("function", "arguments"), ("custom", "input")):
        if isinstance(call.get(name), dict):
            out[name] = _function(call[name], payload)
    if "extra_content" in call:
        out["extra_content"] = call["extra_content"]
    return out


def _function(function: dict[str, Any], payload: str) -> dict[str, Any]:
    """A function's name, and its arguments as the JSON text they are meant to be."""
    out: dict[str, Any] = {}
    if isinstance(function.get("name"), str):
        out["name"] = function["name"]
    value = function.get(payload)
    if value is not None:
        out[payload] = value if isinstance(value, str) else encode_whole(value).decode()
    return out


def _number(value: Any) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdigit():
        value = int(value[:6])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1000 else None
