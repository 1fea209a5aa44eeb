"""The contents of a Gemini request as the messages of a chat request.

Older clients send function calls without ids. Such a call gets an id by its place among all calls, and a result without
one answers the first open call of its function. So equal histories give equal ids, and an upstream's cache of the
prompt stays valid. Sharp edge: a file at an address, other than an image, has no place in a chat request. It is written
as an image for the estimate of the tokens, and `only_native` says that no upstream of another dialect may get it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.errors import InvalidType, InvalidValue, MissingParameter
from gateway.schemas.gemini_contents import (
    Content,
    ContentPart,
    Contents,
    FileReference,
    FunctionResult,
    InlineData,
    Opaque,
    PastCall,
)
from gateway.schemas.schema_errors import invalid
from gateway.schemas.validation import json_kind

AUDIO = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mp3": "mp3", "audio/mpeg": "mp3"}
STORAGE = "https://storage.googleapis.com/"  # what `gs://` stands for
#: Keys under which a function's result is a text, by Google's convention.
RESULT_KEYS = ("output", "result")


def contents_list(contents: Contents) -> list[Content]:
    """The contents, of which one may come without a list."""
    return contents if isinstance(contents, list) else [contents]


class ConversationWriter:
    """Writes contents as messages, in order."""

    def __init__(self) -> None:
        self.messages: list[dict[str, Any]] = []
        self.only_native = ""  # the path of what only an upstream of this dialect can read
        self._calls = 0
        self._open: list[tuple[str, str]] = []  # id and function of the calls without a result
        self._done: set[str | None] = set()  # ids of results

    def write_system(self, content: Content | None) -> None:
        """Add the instructions; only their texts count."""
        texts = [] if content is None else [part.text for part in content.each_part if part.text]
        if texts:
            self.messages.append({"role": "system", "content": "\n\n".join(texts)})

    def write(self, contents: Contents) -> None:
        """Add all turns."""
        for position, content in enumerate(contents_list(contents)):
            path = f"contents[{position}]" if isinstance(contents, list) else "contents"
            if content.role == "model":
                self._answer(content, path)
            else:
                self._question(content, path)

    # The model -------------------------------------------------------------------------------------------------------

    def _answer(self, content: Content, path: str) -> None:
        texts: list[str] = []
        thoughts: list[ContentPart] = []
        calls: list[dict[str, Any]] = []
        for position, part in enumerate(content.each_part):
            _check_kind(part, f"{path}.parts[{position}]")
            if part.function_call is not None:
                calls.append(self._call(part.function_call, part.thought_signature, f"{path}.parts[{position}]"))
            elif part.thought:
                thoughts.append(part)
            elif text := _text(part):
                texts.append(text)
        message: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or (None if calls else "")}
        if calls:
            message["tool_calls"] = calls
        _add_thoughts(message, thoughts)
        if texts or calls:
            self.messages.append(message)

    def _call(self, call: PastCall, signature: str | None, path: str) -> dict[str, Any]:
        id = call.id or f"call_{self._calls}"
        self._calls += 1
        self._open.append((id, call.name))
        arguments = _object(call.args, f"{path}.functionCall.args")
        written: dict[str, Any] = {
            "id": id,
            "type": "function",
            "function": {"name": call.name, "arguments": arguments.decode()},
        }
        if signature:
            written["extra_content"] = {"google": {"thought_signature": signature}}
        return written

    # The user --------------------------------------------------------------------------------------------------------

    def _question(self, content: Content, path: str) -> None:
        parts: list[dict[str, Any]] = []
        for position, part in enumerate(content.each_part):
            at = f"{path}.parts[{position}]"
            _check_kind(part, at)
            if part.function_response is not None:
                parts += self._result(part.function_response, f"{at}.functionResponse")
            else:
                parts += self._part(part, at)
        if parts:
            plain = len(parts) == 1 and parts[0]["type"] == "text"
            self.messages.append({"role": "user", "content": parts[0]["text"] if plain else parts})

    def _result(self, result: FunctionResult, path: str) -> list[dict[str, Any]]:
        """Add the result of a call; returns its media, which only a user's message can hold.

        A second result of the same call adds nothing: Gemini CLI repeats results when it continues a session.
        """
        if result.id in self._done and all(id != result.id for id, _ in self._open):
            return []
        id = self._answered(result, path)
        if result.id is not None:
            self._done.add(result.id)
        self.messages.append({"role": "tool", "tool_call_id": id, "content": _result_text(result, path)})
        media = [(f"{path}.parts[{at}]", part) for at, part in enumerate(result.parts or ())]
        return [
            written
            for at, part in media
            for written in self._part(ContentPart(inline_data=part.inline_data, file_data=part.file_data), at)
        ]

    def _answered(self, result: FunctionResult, path: str) -> str:
        """The id of the call that a result answers."""
        place = next((at for at, (id, _) in enumerate(self._open) if id == result.id), None)
        if place is None:
            place = next((at for at, (_, name) in enumerate(self._open) if name == result.name), None)
        if place is None:
            raise invalid(f"{path}.name", "no earlier function call of this name is without a result")
        return self._open.pop(place)[0]

    def _part(self, part: ContentPart, path: str) -> list[dict[str, Any]]:
        if part.inline_data is not None:
            return [_inline(part.inline_data)]
        if part.file_data is not None:
            return [self._file(part.file_data, f"{path}.fileData")]
        text = _text(part)
        return [{"type": "text", "text": text}] if text else []

    def _file(self, file: FileReference, path: str) -> dict[str, Any]:
        uri = file.file_uri
        if uri.lower().startswith("gs://"):
            uri = STORAGE + uri[5:]
        if not uri.lower().startswith("https://") or len(uri) < 9 or not uri.isprintable() or " " in uri:
            raise invalid(f"{path}.fileUri", "expected an https or gs URL")
        if uri != file.file_uri or not (file.mime_type or "").startswith("image/"):
            self.only_native = self.only_native or path
        return {"type": "image_url", "image_url": {"url": uri}}


def _check_kind(part: ContentPart, path: str) -> None:
    kinds = (
        part.text, part.inline_data, part.file_data, part.function_call, part.function_response,
        part.executable_code, part.code_execution_result,
    )  # fmt: skip
    given = sum(kind is not None for kind in kinds)
    if given > 1:
        raise invalid(path, "a part has one kind of data")
    if not given and not (part.thought or part.thought_signature):
        raise MissingParameter(f"Missing required parameter: '{path}.text', as there is no other data.", param=path)


def _text(part: ContentPart) -> str:
    """The text of a part; code that Google ran counts as text."""
    if part.executable_code is not None:
        return part.executable_code.code
    if part.code_execution_result is not None:
        return part.code_execution_result.output
    return part.text or ""


def _inline(data: InlineData) -> dict[str, Any]:
    kind = data.mime_type.partition(";")[0].strip().lower()
    if kind in AUDIO:
        return {"type": "input_audio", "input_audio": {"data": data.data, "format": AUDIO[kind]}}
    url = f"data:{kind};base64,{data.data}"
    if kind.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}


def _object(raw: Opaque, path: str) -> bytes:
    """The bytes of an object; absence and null are an empty one."""
    if raw is UNSET or bytes(raw) == b"null":
        return b"{}"
    kind = json_kind(memoryview(raw)[0])
    if kind != "an object":
        raise InvalidType(f"Invalid type for '{path}': expected an object, but got {kind} instead.", param=path)
    return bytes(raw)


def _result_text(result: FunctionResult, path: str) -> str:
    """The result as text: that of its one key, if the key says that it is a result, else its JSON."""
    raw = _object(result.response, f"{path}.response")
    try:
        found = msgspec.json.decode(raw, type=dict[str, Raw])
        if len(found) == 1:
            name, value = next(iter(found.items()))
            if name in RESULT_KEYS and bytes(value)[:1] == b'"':
                return msgspec.json.decode(value, type=str)
        return raw.decode()
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise InvalidValue(f"Invalid '{path}.response': it is not valid JSON.", param=f"{path}.response") from None


# Thoughts ------------------------------------------------------------------------------------------------------------


def _add_thoughts(message: dict[str, Any], thoughts: list[ContentPart]) -> None:
    """Add thoughts of an earlier answer; those with another vendor's signature as that vendor wrote them.

    A stream has the signature in a part behind those with the text.
    """
    text, since = "".join(part.text or "" for part in thoughts), ""
    if text:
        message["reasoning_content"] = text
    blocks = []
    for part in thoughts:
        since += part.text or ""
        if signature := plain_signature(part.thought_signature):
            blocks.append({"type": "thinking", "thinking": since, "signature": signature})
            since = ""
    if blocks and not since:
        message["thinking_blocks"] = blocks


def wrapped_signature(signature: str) -> str:
    """A signature of another vendor as `thoughtSignature`, which holds bytes as base64: clients decode it."""
    return base64.b64encode(signature.encode()).decode()


def plain_signature(wrapped: str | None) -> str:
    """The signature that `wrapped_signature` has wrapped; "" for one of Google's, whose bytes are no text."""
    if not wrapped:
        return ""
    try:
        text = base64.b64decode(wrapped.replace("-", "+").replace("_", "/"), validate=True).decode("ascii")
    except (binascii.Error, ValueError):
        return ""
    return text if text.isprintable() else ""
