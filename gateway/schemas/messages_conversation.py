"""The conversation of a Messages request as messages of a chat request.

`ConversationWriter` writes the JSON of the messages. What chat has no JSON for is kept beside it and put into the typed
messages by `mark`: cache breakpoints and thinking, which providers of dialects with such things read, and which servers
of OpenAI's dialect refuse. Sharp edge: chat's tool messages have text alone, so the images and documents of results
follow in a message of the user, behind all results of the turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway.schemas.chat_messages import AssistantMessage, Message, TextPart
from gateway.schemas.messages_blocks import (
    AssistantTurn,
    Base64Source,
    CachedBlock,
    ContentSource,
    DocumentBlock,
    ImageBlock,
    PlainTextSource,
    RedactedThinkingBlock,
    SearchResultBlock,
    SystemContent,
    SystemTurn,
    TextBlock,
    ThinkingBlock,
    ToolReferenceBlock,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
    UpstreamBlock,
    URLSource,
    UserTurn,
)
from gateway.schemas.reasoning_state import is_ours, read_state

Part = dict[str, Any]

ELSEWHERE = "The result follows below."  # the text of a result that has only images or documents
MAX_TITLE = 500  # characters

_encoder = msgspec.json.Encoder()


class _Mark(Struct):
    """What is put into one typed message."""

    message: int
    part: int
    cache_control: Raw


class ConversationWriter:
    """Writes the messages of one request."""

    def __init__(self, model: str) -> None:
        self._model = model
        self.messages: list[Part] = []
        self.left_out: list[str] = []  # types of blocks that chat has no place for
        self.only_native = ""  # the path of what only an upstream of this dialect can serve
        self._marks: list[_Mark] = []
        self._thoughts: dict[int, Sequence[ThinkingBlock | RedactedThinkingBlock]] = {}

    def write(self, system: SystemContent | None, turns: Sequence[Turn]) -> None:
        """Write the whole conversation."""
        if system:
            self._texts("system", system)
        for index, turn in enumerate(turns):
            if isinstance(turn, SystemTurn):
                self._texts("system", turn.content)
            elif isinstance(turn, UserTurn):
                self._user(turn, f"messages[{index}].content")
            else:
                self._assistant(turn)
        if not self.messages:  # of blocks alone that are left out
            self.messages.append({"role": "user", "content": ""})

    def mark(self, messages: Sequence[Message]) -> None:
        """Put cache breakpoints and thinking into the typed messages, in the order of `self.messages`."""
        for mark in self._marks:
            message: Any = messages[mark.message]
            if isinstance(message.content, str):
                message.content = [TextPart(text=message.content)]
            if message.content:
                message.content[min(mark.part, len(message.content) - 1)].cache_control = mark.cache_control
        for at, blocks in self._thoughts.items():
            answer = messages[at]
            assert isinstance(answer, AssistantMessage)
            answer.thinking_blocks = Raw(_encoder.encode(blocks))
            thought = "".join(block.thinking for block in blocks if isinstance(block, ThinkingBlock))
            answer.reasoning_content = thought or None

    # By role ---------------------------------------------------------------------------------------------------------

    def _texts(self, role: str, content: SystemContent) -> None:
        if isinstance(content, str):
            self.messages.append({"role": role, "content": content})
        elif content:
            parts = [{"type": "text", "text": block.text} for block in content]
            self._append(role, parts, [block.cache_control for block in content])

    def _user(self, turn: UserTurn, path: str) -> None:
        if isinstance(turn.content, str):
            self.messages.append({"role": "user", "content": turn.content})
            return
        parts: list[Part] = []
        caches: list[Raw | UnsetType] = []
        for position, block in enumerate(turn.content):
            if isinstance(block, ToolResultBlock):
                for shown in self._result(block, f"{path}[{position}]"):
                    parts.append(shown)
                    caches.append(UNSET)
        for position, block in enumerate(turn.content):
            if isinstance(block, ToolResultBlock):
                continue
            if isinstance(block, UpstreamBlock):
                self._leave_out(block)
                continue
            shown_parts = self._parts(block, f"{path}[{position}]")
            parts += shown_parts
            caches += [UNSET] * len(shown_parts)
            if shown_parts:
                caches[-1] = block.cache_control
        if parts:
            self._append("user", parts, caches)

    def _assistant(self, turn: AssistantTurn) -> None:
        if isinstance(turn.content, str):
            self.messages.append({"role": "assistant", "content": turn.content})
            return
        texts: list[str] = []
        calls: list[Part] = []
        signed: dict[str, Raw] = {}  # `extra_content` by the id of a call
        thoughts: list[ThinkingBlock | RedactedThinkingBlock] = []
        cache: Raw | UnsetType = UNSET
        for block in turn.content:
            if isinstance(block, TextBlock):
                texts.append(block.text)
                cache = block.cache_control if block.cache_control is not UNSET else cache
            elif isinstance(block, ToolUseBlock):
                function = {"name": block.name, "arguments": _compact(block.input)}
                calls.append({"id": block.id, "type": "function", "function": function})
                if block.id in signed:
                    calls[-1]["extra_content"] = signed[block.id]
            elif isinstance(block, RedactedThinkingBlock) and is_ours(block.data):
                state = read_state(block.data, self._model)
                signed |= state.calls if state is not None else {}
            elif isinstance(block, UpstreamBlock):
                self._leave_out(block)
            else:
                thoughts.append(block)
        message: Part = {"role": "assistant", "content": "".join(texts) or (None if calls else "")}
        if calls:
            message["tool_calls"] = calls
        if thoughts:
            self._thoughts[len(self.messages)] = thoughts
        if cache is not UNSET and message["content"]:
            self._marks.append(_Mark(len(self.messages), 0, cache))
        self.messages.append(message)

    # Parts -----------------------------------------------------------------------------------------------------------

    def _result(self, block: ToolResultBlock, path: str) -> list[Part]:
        """Write the message of a result; returns the parts of it that are no text."""
        texts: list[str] = []
        shown: list[Part] = []
        cache = block.cache_control
        if isinstance(block.content, str):
            texts.append(block.content)
        else:
            for inner, part in enumerate(block.content or ()):
                for one in self._parts(part, f"{path}.content[{inner}]"):
                    if one["type"] == "text":
                        texts.append(one["text"])
                    else:
                        shown.append(one)
                cache = part.cache_control if part.cache_control is not UNSET else cache
        text = "\n".join(texts) or (ELSEWHERE if shown else "")
        if block.is_error and "error" not in text[:100].lower():
            text = f"Error: {text}" if text else "Error"
        if cache is not UNSET:
            self._marks.append(_Mark(len(self.messages), 0, cache))
        self.messages.append({"role": "tool", "tool_call_id": block.tool_use_id, "content": text})
        return shown

    def _parts(self, block: CachedBlock, path: str) -> list[Part]:
        """The block as parts of a message of the user."""
        if isinstance(block, TextBlock):
            return [{"type": "text", "text": block.text}]
        if isinstance(block, ImageBlock):
            return [_image(block)]
        if isinstance(block, DocumentBlock):
            return self._document(block, path)
        if isinstance(block, SearchResultBlock):
            text = "\n".join(part.text for part in block.content)
            return [{"type": "text", "text": f"{block.title} ({block.source})\n{text}"}]
        assert isinstance(block, ToolReferenceBlock)
        return [{"type": "text", "text": f"Tool: {block.tool_name}"}]

    def _document(self, block: DocumentBlock, path: str) -> list[Part]:
        source, title = block.source, (block.title or "")[:MAX_TITLE]
        if isinstance(source, Base64Source):
            name = title if title.lower().endswith(".pdf") else f"{title or 'document'}.pdf"
            data = f"data:{source.media_type};base64,{source.data}"
            return [*_heading("", block.context), {"type": "file", "file": {"file_data": data, "filename": name}}]
        if isinstance(source, PlainTextSource):
            return [*_heading(title, block.context), {"type": "text", "text": source.data}]
        if isinstance(source, ContentSource):
            inner = source.content
            parts = (
                [{"type": "text", "text": inner}]
                if isinstance(inner, str)
                else [part for one in inner for part in self._parts(one, path)]
            )
            return [*_heading(title, block.context), *parts]
        self.only_native = self.only_native or f"{path}.source.type"
        return []

    def _append(self, role: str, parts: list[Part], caches: Sequence[Raw | UnsetType]) -> None:
        for position, cache in enumerate(caches):
            if cache is not UNSET:
                self._marks.append(_Mark(len(self.messages), position, cache))
        single = len(parts) == 1 and parts[0]["type"] == "text"
        self.messages.append({"role": role, "content": parts[0]["text"] if single else parts})

    def _leave_out(self, block: UpstreamBlock) -> None:
        name = str(block.__struct_config__.tag)
        if name not in self.left_out:
            self.left_out.append(name)


def _heading(title: str, context: str | None) -> list[Part]:
    text = "\n".join(filter(None, (title, context)))
    return [{"type": "text", "text": text}] if text else []


def _image(block: ImageBlock) -> Part:
    source = block.source
    if isinstance(source, Base64Source):
        url = f"data:{source.media_type.lower()};base64,{source.data}"
    else:
        assert isinstance(source, URLSource)
        url = source.url
    return {"type": "image_url", "image_url": {"url": url}}


def _compact(value: Raw) -> str:
    """The JSON text of a call's input, without space."""
    return msgspec.json.format(bytes(value), indent=-1).decode()
