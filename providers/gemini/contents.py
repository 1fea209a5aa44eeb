"""The conversation of a chat request as Gemini's `systemInstruction` and `contents`.

Tool results name their function, not only their call, so names are looked up from the calls before them. A function
call goes back with the thought signature it came with, from `extra_content.google.thought_signature`; where a model
demands one that the caller did not keep, Google's documented bypass stands in for it.
Sharp edge: of parallel calls only the first carries a signature, so only the first ever gets the bypass.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway import ChatRequest
from gateway.errors import InvalidValue, UnsupportedParameter
from gateway.schemas.chat_messages import (
    AssistantMessage,
    AudioPart,
    FilePart,
    FunctionToolCall,
    ImagePart,
    RefusalPart,
    TextPart,
    ToolMessage,
    UserMessage,
)

from .._shared.conversation import Placed, arguments_object, conversation, joined_text, text_parts
from .media import audio_part, file_part, image_part

BYPASS = "skip_thought_signature_validator"

Part = dict[str, Any]

_BASE64 = re.compile(r"[A-Za-z0-9+/_-]+={0,2}")


def contents_of(request: ChatRequest, *, signatures: bool) -> dict[str, Any]:
    """`contents`, and `systemInstruction` if there is one; raises BadRequest errors for what Gemini cannot be told."""
    talk = conversation(request.messages)
    writer = _Writer(signatures=signatures)
    contents: list[dict[str, Any]] = []
    for turn in talk.turns:
        parts = [part for placed in turn.messages for part in writer.parts(placed)]
        role = "model" if turn.role == "assistant" else "user"
        if contents and contents[-1]["role"] == role:  # an empty turn between them was left out
            contents[-1]["parts"] += parts
        elif parts:
            contents.append({"role": role, "parts": parts})
    if not contents:
        raise InvalidValue(
            "Invalid 'messages': this model needs at least one message that says something.", param="messages"
        )
    out: dict[str, Any] = {"contents": contents}
    system = [{"text": text.text} for placed in talk.system for text in text_parts(placed.message.content)]
    if system:
        out["systemInstruction"] = {"parts": system}
    return out


class _Writer:
    """Writes messages as parts, in order, and remembers which function each call was of."""

    def __init__(self, *, signatures: bool) -> None:
        self._signatures = signatures
        self._names: dict[str, str] = {}

    def parts(self, placed: Placed) -> list[Part]:
        message = placed.message
        if isinstance(message, AssistantMessage):
            return self._answer(message, placed.path)
        if isinstance(message, ToolMessage):
            return [self._result(message)]
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            return _user_parts(message.content, f"{placed.path}.content")
        return [{"text": part.text} for part in text_parts(message.content)]

    def _answer(self, message: AssistantMessage, path: str) -> list[Part]:
        if message.audio is not None:
            raise UnsupportedParameter(
                f"Unsupported parameter: '{path}.audio'. Spoken answers are not kept; send what was said as text.",
                param=f"{path}.audio",
            )
        parts = _said(message)
        for position, call in enumerate(message.tool_calls or ()):
            at = f"{path}.tool_calls[{position}]"
            if not isinstance(call, FunctionToolCall):
                raise UnsupportedParameter("This model does not support custom tools.", param=f"{at}.type")
            self._names[call.id] = call.function.name
            arguments = arguments_object(call.function.arguments)
            part: Part = {"functionCall": {"id": call.id, "name": call.function.name, "args": arguments}}
            signature = thought_signature(call.extra_content)
            if signature is None and self._signatures and position == 0:
                signature = BYPASS
            if signature is not None:
                part["thoughtSignature"] = signature
            parts.append(part)
        return parts

    def _result(self, message: ToolMessage) -> Part:
        text = joined_text(message.content)
        name = self._names[message.tool_call_id]  # the request was refused before if there is no such call
        return {"functionResponse": {"id": message.tool_call_id, "name": name, "response": _response(text)}}


def thought_signature(extra_content: Raw | UnsetType) -> str | None:
    """The signature in a call's `extra_content`; None when there is none that could be one."""
    if extra_content is UNSET:
        return None
    try:
        signature = msgspec.json.decode(extra_content)["google"]["thought_signature"]
    except (msgspec.MsgspecError, RecursionError, KeyError, TypeError, IndexError):
        return None
    return signature if isinstance(signature, str) and _BASE64.fullmatch(signature) else None


def extra_content(signature: str) -> Raw:
    """The `extra_content` that carries a signature to the caller, shaped as Google's own OpenAI endpoint does."""
    return Raw(msgspec.json.encode({"google": {"thought_signature": signature}}))


def _said(message: AssistantMessage) -> list[Part]:
    """The texts of an earlier answer; a refusal counts as what was said."""
    if isinstance(message.content, list):
        said = [part.refusal if isinstance(part, RefusalPart) else part.text for part in message.content]
    else:
        said = [message.content or message.refusal or ""]
    return [{"text": text} for text in said if text]


def _user_parts(parts: list[Any], path: str) -> list[Part]:
    out: list[Part] = []
    for position, part in enumerate(parts):
        match part:
            case TextPart():
                out += [{"text": part.text}] if part.text else []
            case ImagePart():
                out.append(image_part(part, f"{path}[{position}]"))
            case AudioPart():
                out.append(audio_part(part))
            case FilePart():
                out.append(file_part(part, f"{path}[{position}]"))
    return out


def _response(text: str) -> Any:
    """A tool's answer as the object that Gemini wants: itself if it is one, else wrapped.

    Gemini takes `$ref` in a response for the name of a media part beside it, and refuses one that names none
    (https://ai.google.dev/gemini-api/docs/function-calling#multimodal, router-for-me/CLIProxyAPI#6065). A tool may
    answer with a JSON schema, so an object with a name that begins with `$` is sent as text.
    """
    try:
        answer = msgspec.json.decode(text)
        if isinstance(answer, dict) and not (("$" in text or "\\" in text) and _has_dollar_name(answer)):
            return Raw(text.encode())
    except (msgspec.MsgspecError, RecursionError):
        pass
    return {"result": text}


def _has_dollar_name(value: Any) -> bool:
    """Whether some object in a document has a member whose name begins with `$`."""
    pending = [value]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            if any(name.startswith("$") for name in one):
                return True
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return False
