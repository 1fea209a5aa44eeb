"""Messages as Bedrock's content blocks: text, images, audio, documents, tool calls and results, reasoning.

`BlockWriter(cache_points=…).conversation(talk)` returns the system blocks and the alternating turns. Media stay the
base64 they came as. Whatever Converse has no block for is refused with the path of the part, before anything is sent.
Sharp edge: a cache point is a block of its own, behind what it covers, and Bedrock takes four, so the last four remain.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from gateway.schemas.chat_messages import (
    AssistantMessage,
    CacheBreakpoint,
    CustomToolCall,
    FilePart,
    FunctionToolCall,
    ImagePart,
    RefusalPart,
    TextPart,
    ToolMessage,
    UserMessage,
    UserPart,
)

from .._shared.chat_parts import Block, merged_turns, objects_of, unsupported
from .._shared.conversation import Conversation, Placed, arguments_object, narrow_id, text_parts
from .._shared.data_url import DataURL, image_type, is_data_url, read_data_url

MAX_CACHE_POINTS = 4
MAX_NAME = 180  # characters of a document's name; Bedrock takes 200, and some are for a number behind it

IMAGES: Mapping[str, str] = {
    "image/png": "png",
    "image/jpeg": "jpeg",
    "image/jpg": "jpeg",
    "image/gif": "gif",
    "image/webp": "webp",
}
DOCUMENTS: Mapping[str, str] = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9 ()\[\]-]+")
_EXTENSION = re.compile(r"\.[A-Za-z0-9]{1,5}$")


class BlockWriter:
    """Writes the blocks of one request."""

    def __init__(self, *, cache_points: bool) -> None:
        self._takes_points = cache_points
        self._points: list[Block] = []  # in order
        self._names: set[str] = set()  # of documents

    def conversation(self, talk: Conversation) -> tuple[list[Block], list[Block]]:
        """The system blocks, and the turns as `messages`; empty ones are left out, and their neighbours merged."""
        system = [block for placed in talk.system for block in self._texts(placed.message.content)]
        messages = merged_turns(talk, self._message, missing="this model needs a user's words first")
        if self._points:
            for content in (system, *(message["content"] for message in messages)):
                self._limit_points(content)
        return system, messages

    def _message(self, placed: Placed) -> Iterable[Block]:
        message = placed.message
        if isinstance(message, AssistantMessage):
            return self._assistant(message, placed.path)
        if isinstance(message, ToolMessage):
            return self._tool_result(message)
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            return self._parts(message.content, f"{placed.path}.content")
        return self._texts(message.content)  # the user's, or later instructions

    def _texts(self, content: str | Sequence[object] | None) -> Iterator[Block]:
        for part in text_parts(content):
            if part.text.isspace():
                continue  # Bedrock calls such a text blank, and refuses it
            yield {"text": part.text}
            yield from self._point(part.cache_breakpoint)

    # What users show -------------------------------------------------------------------------------------------------

    def _parts(self, parts: Iterable[UserPart], path: str) -> Iterator[Block]:
        for position, part in enumerate(parts):
            if isinstance(part, TextPart):
                yield from self._texts([part])
                continue
            yield self._media(part, f"{path}[{position}]")
            yield from self._point(part.cache_breakpoint)

    def _media(self, part: UserPart, path: str) -> Block:
        if isinstance(part, ImagePart):
            return _image(part.image_url.url, f"{path}.image_url.url")
        if isinstance(part, FilePart):
            return self._document(part, f"{path}.file.file_data")
        assert not isinstance(part, TextPart)
        return {"audio": {"format": part.input_audio.format, "source": {"bytes": part.input_audio.data}}}

    def _document(self, part: FilePart, param: str) -> Block:
        document = read_data_url(part.file.file_data or "", param)
        if document.media_type.startswith("image/"):
            return _inline_image(document, param)
        kind = DOCUMENTS.get(document.media_type)
        if kind is None:
            raise unsupported(param, "expected a PDF, Word, Excel, CSV, HTML, Markdown or text document, or an image")
        name = self._name(part.file.filename or "")
        return {"document": {"format": kind, "name": name, "source": {"bytes": document.data}}}

    def _name(self, filename: str) -> str:
        """A document's name in the characters that Bedrock takes; no two documents may have the same."""
        plain = " ".join(_NOT_IN_A_NAME.sub(" ", _EXTENSION.sub("", filename)).split())[:MAX_NAME].strip()
        name = plain or "document"
        number = 1
        while name in self._names:
            number += 1
            name = f"{plain or 'document'} ({number})"
        self._names.add(name)
        return name

    # What the model said, and what tools answered ------------------------------------------------------------------

    def _assistant(self, message: AssistantMessage, path: str) -> Iterator[Block]:
        if message.audio is not None and not (message.content or message.tool_calls):
            raise unsupported(f"{path}.audio", "this model cannot hear an earlier spoken answer")
        yield from _reasoning(message, path)
        for part in message.content if isinstance(message.content, list) else text_parts(message.content):
            yield from self._texts(part.refusal if isinstance(part, RefusalPart) else [part])
        yield from self._texts(message.refusal)
        for position, call in enumerate(message.tool_calls or ()):
            yield _tool_use(call, f"{path}.tool_calls[{position}]")

    def _tool_result(self, message: ToolMessage) -> Iterator[Block]:
        parts = [part for part in text_parts(message.content) if not part.text.isspace()]
        content = [{"text": part.text} for part in parts]
        yield {"toolResult": {"toolUseId": narrow_id(message.tool_call_id), "content": content}}
        marks = [mark for part in parts if (mark := part.cache_breakpoint) is not None]
        if marks:
            yield from self._point(marks[-1])

    # Cache points ----------------------------------------------------------------------------------------------------

    def _point(self, breakpoint: CacheBreakpoint | None) -> Iterator[Block]:
        if breakpoint is not None and self._takes_points:
            long = breakpoint.ttl == "12h"  # the longest that Bedrock has is an hour; unsaid, it is five minutes
            point = {"cachePoint": {"type": "default", **({"ttl": "1h"} if long else {})}}
            self._points.append(point)
            yield point

    def _limit_points(self, content: list[Block]) -> None:
        """Take out the points before the last four, and the long life of those behind a short one."""
        kept = self._points[-MAX_CACHE_POINTS:]
        short = False
        for point in kept:
            short = short or "ttl" not in point["cachePoint"]
            if short:
                point["cachePoint"].pop("ttl", None)
        surplus = {id(point) for point in self._points[:-MAX_CACHE_POINTS]}
        if surplus:
            content[:] = [block for block in content if id(block) not in surplus]


def _image(url: str, param: str) -> Block:
    if not is_data_url(url):
        raise unsupported(param, "this model takes images as base64 data URLs only")
    return _inline_image(read_data_url(url, param), param)


def _inline_image(image: DataURL, param: str) -> Block:
    kind = IMAGES.get(image_type(image.data) or image.media_type)
    if kind is None:
        raise unsupported(param, "expected a PNG, JPEG, GIF or WebP image")
    return {"image": {"format": kind, "source": {"bytes": image.data}}}


def _tool_use(call: FunctionToolCall | CustomToolCall, path: str) -> Block:
    if isinstance(call, CustomToolCall):
        raise unsupported(f"{path}.type", "this model has no custom tools")
    arguments = arguments_object(call.function.arguments)
    return {"toolUse": {"toolUseId": narrow_id(call.id), "name": call.function.name, "input": arguments}}


def _reasoning(message: AssistantMessage, path: str) -> Iterator[Block]:
    """The thoughts that Bedrock can verify, or it would refuse them."""
    for item in objects_of(message.thinking_blocks, f"{path}.thinking_blocks"):
        text, signature, data = item.get("thinking"), item.get("signature"), item.get("data")
        if isinstance(text, str) and isinstance(signature, str) and signature:
            yield {"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}}
        elif isinstance(data, str) and data:
            yield {"reasoningContent": {"redactedContent": data}}
