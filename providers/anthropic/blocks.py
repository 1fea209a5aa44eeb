"""Messages as Anthropic's content blocks: text, images, documents, tool calls and results, thinking.

`BlockWriter().conversation(talk)` returns the system blocks and the alternating turns. What the dialect has no block
for is refused with the path of the part, before anything is sent. Cache breakpoints become `cache_control`; Anthropic
takes four, so the last four remain, which reach furthest into the prompt. Sharp edge: what Anthropic would refuse is
left out, namely text of nothing but space, and thinking without the signature that proves it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from gateway.schemas.chat_messages import (
    AssistantMessage,
    CacheBreakpoint,
    CustomToolCall,
    File,
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
from .._shared.data_url import image_type, is_address, is_data_url, read_data_url

MAX_BREAKPOINTS = 4
IMAGE_TYPES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
TEXT_TYPES = frozenset({"application/json", "application/xml", "application/yaml", "application/javascript"})


class BlockWriter:
    """Writes the blocks of one request."""

    def __init__(self) -> None:
        self._cached: list[Block] = []  # blocks with a breakpoint, in order

    def conversation(self, talk: Conversation) -> tuple[list[Block], list[Block]]:
        """The system blocks, and the turns as `messages`; empty ones are left out, and their neighbours merged."""
        system = [block for placed in talk.system for block in self._texts(placed.message.content)]
        missing = "the first user message must not be empty"
        messages = merged_turns(talk, self._message, missing=missing)
        self._limit_breakpoints()
        return system, messages

    def _message(self, placed: Placed) -> list[Block]:
        message = placed.message
        if isinstance(message, AssistantMessage):
            return self._assistant(message, placed.path)
        if isinstance(message, ToolMessage):
            return [self._tool_result(message)]
        if isinstance(message, UserMessage) and isinstance(message.content, list):
            return self._parts(message.content, f"{placed.path}.content")
        return self._texts(message.content)  # the user's, or later instructions

    # Text ------------------------------------------------------------------------------------------------------------

    def _texts(self, content: str | Sequence[object] | None) -> list[Block]:
        return [self._text(part) for part in text_parts(content) if not part.text.isspace()]

    def _text(self, part: TextPart) -> Block:
        return self._marked({"type": "text", "text": part.text}, part.cache_breakpoint)

    # What users show -------------------------------------------------------------------------------------------------

    def _parts(self, parts: Iterable[UserPart], path: str) -> list[Block]:
        return [
            self._marked(block, part.cache_breakpoint)
            for position, part in enumerate(parts)
            if (block := _user_block(part, f"{path}[{position}]")) is not None
        ]

    # What the model said, and what tools answered ------------------------------------------------------------------

    def _assistant(self, message: AssistantMessage, path: str) -> list[Block]:
        if message.audio is not None and not (message.content or message.tool_calls):
            raise unsupported(f"{path}.audio", "this model cannot hear an earlier spoken answer")
        blocks = _thinking(message, path)
        if isinstance(message.content, str) or message.content is None:
            blocks += self._texts(message.content)
        else:
            for part in message.content:
                blocks += self._texts(part.refusal) if isinstance(part, RefusalPart) else self._texts([part])
        blocks += self._texts(message.refusal)
        calls = enumerate(message.tool_calls or ())
        return blocks + [_tool_use(call, f"{path}.tool_calls[{position}]") for position, call in calls]

    def _tool_result(self, message: ToolMessage) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": narrow_id(message.tool_call_id)}
        if isinstance(message.content, str):
            if message.content.strip():
                block["content"] = message.content
            return block
        parts = [part for part in text_parts(message.content) if not part.text.isspace()]
        if parts:
            block["content"] = [{"type": "text", "text": part.text} for part in parts]
        marks = [mark for part in parts if (mark := part.cache_breakpoint) is not None]
        return self._marked(block, marks[-1] if marks else None)

    # Cache breakpoints -----------------------------------------------------------------------------------------------

    def _marked(self, block: Block, breakpoint: CacheBreakpoint | None) -> Block:
        if breakpoint is not None:
            block["cache_control"] = {"type": "ephemeral", "ttl": "1h" if breakpoint.ttl == "12h" else "5m"}
            self._cached.append(block)
        return block

    def _limit_breakpoints(self) -> None:
        for block in self._cached[:-MAX_BREAKPOINTS]:
            del block["cache_control"]
        short = False
        for block in self._cached[-MAX_BREAKPOINTS:]:
            short = short or block["cache_control"]["ttl"] == "5m"
            if short:  # Anthropic refuses a long life after a short one
                block["cache_control"]["ttl"] = "5m"


# User parts --------------------------------------------------------------------------------------------------------


def _user_block(part: UserPart, path: str) -> Block | None:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text} if part.text.strip() else None
    if isinstance(part, ImagePart):
        return _image(part.image_url.url, f"{path}.image_url.url")
    if isinstance(part, FilePart):
        return _document(part.file, f"{path}.file.file_data")
    raise unsupported(f"{path}.input_audio", "this model cannot listen")


def _image(url: str, param: str) -> Block:
    if not is_data_url(url):
        return {"type": "image", "source": {"type": "url", "url": url}}
    image = read_data_url(url, param)
    return _inline_image(image.media_type, image.data, param)


def _inline_image(media_type: str, data: str, param: str) -> Block:
    kind = image_type(data) or media_type.replace("image/jpg", "image/jpeg")
    if kind not in IMAGE_TYPES:
        raise unsupported(param, "expected a PNG, JPEG, GIF or WebP image")
    return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}


def _document(file: File, param: str) -> Block:
    if is_address(file.file_data or ""):
        return {"type": "document", "source": {"type": "url", "url": file.file_data}, **_title(file)}
    document = read_data_url(file.file_data or "", param)
    kind = document.media_type
    if kind.startswith("image/"):
        return _inline_image(kind, document.data, param)
    if kind == "application/pdf":
        source = {"type": "base64", "media_type": kind, "data": document.data}
    elif kind.startswith("text/") or kind in TEXT_TYPES:
        source = {"type": "text", "media_type": "text/plain", "data": document.text_of(param)}
    else:
        raise unsupported(param, "expected a PDF, text or image")
    return {"type": "document", "source": source, **_title(file)}


def _title(file: File) -> Block:
    return {"title": file.filename} if file.filename else {}


# Assistant parts ---------------------------------------------------------------------------------------------------


def _tool_use(call: FunctionToolCall | CustomToolCall, path: str) -> Block:
    if isinstance(call, CustomToolCall):
        raise unsupported(f"{path}.type", "this model has no custom tools")
    return {
        "type": "tool_use",
        "id": narrow_id(call.id),
        "name": call.function.name,
        "input": arguments_object(call.function.arguments),
    }


def _thinking(message: AssistantMessage, path: str) -> list[Block]:
    """The thinking that can be verified, as this gateway gave it out or in the words of OpenRouter."""
    given: Iterable[dict[str, Any]] = objects_of(message.thinking_blocks, f"{path}.thinking_blocks")
    if not given:
        given = map(_of_reasoning_detail, objects_of(message.reasoning_details, f"{path}.reasoning_details"))
    return [block for item in given if (block := _verifiable(item)) is not None]


def _verifiable(item: dict[str, Any]) -> Block | None:
    kind, text, signature, data = (item.get(key) for key in ("type", "thinking", "signature", "data"))
    if kind == "thinking" and isinstance(text, str) and isinstance(signature, str) and signature:
        return {"type": kind, "thinking": text, "signature": signature}
    if kind == "redacted_thinking" and isinstance(data, str) and data:
        return {"type": kind, "data": data}
    return None


def _of_reasoning_detail(item: dict[str, Any]) -> dict[str, Any]:
    if not str(item.get("format", "anthropic")).startswith("anthropic"):
        return {}  # another vendor's, which Anthropic could not verify
    if item.get("type") == "reasoning.encrypted":
        return {"type": "redacted_thinking", "data": item.get("data")}
    return {"type": "thinking", "thinking": item.get("text"), "signature": item.get("signature")}
