"""Combines a stream of chat chunks into one whole answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway.errors import UpstreamInvalidResponse, UpstreamTruncated
from gateway.plugins.isolation import TURN, check_stream, is_cancelled, yield_to_loop
from gateway.schemas.chat_response import (
    ChatChunk,
    ChatCompletion,
    ChatMessage,
    Choice,
    ChunkChoice,
    CustomCall,
    Delta,
    FunctionCall,
    ToolCall,
    ToolCallDelta,
    later_reason,
)

MAX_CHUNKS = 2_000_000  # a limit for an endless stream; more than any model writes


async def fold_chat(chunks: AsyncIterator[ChatChunk]) -> ChatCompletion:
    """The whole answer of `chunks`; UpstreamTruncated if a choice is unfinished, or there is none."""
    fold = ChatFold()
    taken = 0
    check_stream(chunks)
    async for chunk in chunks:
        taken += 1
        if not taken % TURN or is_cancelled():
            await yield_to_loop()
        if taken > MAX_CHUNKS:
            raise UpstreamInvalidResponse(detail=f"an answer of more than {MAX_CHUNKS} chunks")
        fold.add(chunk)
    return fold.whole()


class ChatFold:
    """Collects the chunks of one answer."""

    def __init__(self) -> None:
        self._answer = ChatCompletion()
        self._choices: dict[int, _ChoiceFold] = {}

    def add(self, chunk: ChatChunk) -> None:
        """Add the next chunk; it may be changed afterwards."""
        answer = self._answer
        if chunk.usage is not UNSET and chunk.usage is not None:
            answer.usage = chunk.usage
        if chunk.system_fingerprint:
            answer.system_fingerprint = chunk.system_fingerprint
        if chunk.service_tier is not UNSET and chunk.service_tier is not None:
            answer.service_tier = chunk.service_tier
        if chunk.moderation is not UNSET:
            answer.moderation = chunk.moderation
        for part in chunk.choices:
            self._choices.setdefault(part.index, _ChoiceFold()).add(part)

    def whole(self) -> ChatCompletion:
        """The whole answer; UpstreamTruncated if a choice is unfinished, or there is none."""
        answer, choices = self._answer, self._choices
        if not choices or any(fold.finish_reason is None for fold in choices.values()):
            raise UpstreamTruncated()
        answer.choices = [choices[index].choice(position) for position, index in enumerate(sorted(choices))]
        return answer


class _ChoiceFold:
    """Collects the parts of one choice."""

    def __init__(self) -> None:
        self.finish_reason: str | None = None
        self.texts: dict[str, list[str]] = {}
        self.calls: dict[int, _CallFold] = {}
        self.raws: dict[str, Raw] = {}
        self.logprobs: list[Any] = []

    def add(self, part: ChunkChoice) -> None:
        delta = part.delta
        for name in ("content", "refusal", "reasoning_content"):
            text = getattr(delta, name)
            if text is not UNSET and text is not None:
                self.texts.setdefault(name, []).append(text)
        if delta.tool_calls:
            for fragment in delta.tool_calls:
                position = fragment.index if fragment.index is not UNSET else max(len(self.calls) - 1, 0)
                self.calls.setdefault(position, _CallFold()).add(fragment)
        self._keep_last(delta)
        if part.logprobs:
            self.logprobs.append(part.logprobs)
        self.finish_reason = later_reason(self.finish_reason, part.finish_reason)

    def _keep_last(self, delta: Delta) -> None:
        for name in ("audio", "annotations", "reasoning_details", "thinking_blocks", "images"):
            value = getattr(delta, name)
            if value is not UNSET:
                self.raws[name] = value

    def choice(self, index: int) -> Choice:
        message = ChatMessage(content=self._text("content"), refusal=self._text("refusal"))
        reasoning = self._text("reasoning_content")
        if reasoning:
            message.reasoning_content = reasoning
        if self.calls:
            message.tool_calls = [self.calls[position].call() for position in sorted(self.calls)]
            message.content = message.content or None
        for name, value in self.raws.items():
            setattr(message, name, value)
        return Choice(index=index, message=message, logprobs=_joined(self.logprobs), finish_reason=self.finish_reason)

    def _text(self, name: str) -> str | None:
        parts = self.texts.get(name)
        return "".join(parts) if parts is not None else None


def _joined(parts: list[Any]) -> Any:
    """Log probabilities of a whole choice: the lists of its chunks, one after the other."""
    if len(parts) < 2:
        return parts[0] if parts else None
    joined: dict[str, list[Any]] = {}
    for part in parts:
        for name, items in msgspec.convert(part, dict[str, list[Any] | None]).items():
            joined.setdefault(name, []).extend(items or [])
    return joined


class _CallFold:
    """Collects the fragments of one tool call."""

    def __init__(self) -> None:
        self.id = ""
        self.name = ""
        self.kind = "function"
        self.text: list[str] = []
        self.extra_content: Raw | UnsetType = UNSET

    def add(self, fragment: ToolCallDelta) -> None:
        self.id = fragment.id or self.id
        if fragment.extra_content is not UNSET:
            self.extra_content = fragment.extra_content
        if fragment.function:
            self.name = fragment.function.name or self.name
            self.text.append(fragment.function.arguments or "")
        elif fragment.custom:
            self.kind = "custom"
            self.name = fragment.custom.name or self.name
            self.text.append(fragment.custom.input or "")

    def call(self) -> ToolCall:
        text = "".join(self.text)
        if self.kind == "custom":
            call = ToolCall(id=self.id, type="custom", custom=CustomCall(name=self.name, input=text))
        else:
            function = FunctionCall(name=self.name, arguments=text or "{}")
            call = ToolCall(id=self.id, type="function", function=function)
        call.extra_content = self.extra_content
        return call
