"""Converse's whole answer, read into the gateway's shapes; usage and stop reasons, which streams share.

Thoughts come out twice: as `reasoning_content` to read, and as `thinking_blocks` with their signatures, which callers
send back unchanged. Sharp edge: Bedrock counts cached tokens beside the input, the wire counts them inside the prompt.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from gateway import (
    ChatCompletion,
    ChatMessage,
    Choice,
    CompletionUsage,
    FunctionCall,
    ToolCall,
    completion_usage,
)
from gateway.errors import UpstreamInvalidResponse
from gateway.schemas.answer_surrogates import encode_whole

from .._shared.documents import decoded, raise_error_inside

FINISH_REASONS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "guardrail_intervened": "content_filter",
    "content_filtered": "content_filter",
}
FAILED_REASONS = frozenset({"malformed_model_output", "malformed_tool_use"})

# Bedrock's tiers in the words of an answer: what is reserved there is called scale here.
TIERS: Mapping[str, str] = {"default": "default", "flex": "flex", "priority": "priority", "reserved": "scale"}


class WireToolUse(Struct, rename="camel"):
    """A call of a tool; `type` is set only for tools that the server itself runs."""

    tool_use_id: str | None = ""
    name: str | None = ""
    input: Raw = Raw(b"{}")
    type: str | None = ""


class WireReasoningText(Struct):
    """Thoughts, and the proof that they are the model's own."""

    text: str = ""
    signature: str | None = None


class WireReasoning(Struct, rename="camel"):
    """Thoughts in the open, or sealed as base64."""

    reasoning_text: WireReasoningText | None = None
    redacted_content: str | None = None


class WireText(Struct):
    """A piece of text."""

    text: str = ""


class WireCitations(Struct):
    """Text with its sources, of which the text is passed on."""

    content: list[WireText] = []


class WireBlock(Struct, rename="camel"):
    """One content block; exactly one field is set, or none that is known here."""

    text: str | None = None
    tool_use: WireToolUse | None = None
    reasoning_content: WireReasoning | None = None
    citations_content: WireCitations | None = None


class WireMessage(Struct):
    """What the model said."""

    content: list[WireBlock] = []


class WireOutput(Struct):
    """The one kind of output there is."""

    message: WireMessage


class WireTier(Struct):
    """The tier that served the call."""

    type: str = ""


class WireAnswer(Struct, rename="camel"):
    """A whole answer."""

    output: WireOutput
    stop_reason: str | None = None
    usage: Any = None
    service_tier: WireTier | None = None


class Thoughts:
    """Collects signed and sealed thoughts in the shape in which callers send them back."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, str]] = []

    def add(self, text: str, signature: str | None) -> None:
        """Thoughts in the open; unsigned ones are for reading only."""
        if signature:
            self._blocks.append({"type": "thinking", "thinking": text, "signature": signature})

    def seal(self, data: str) -> None:
        """Sealed thoughts."""
        self._blocks.append({"type": "redacted_thinking", "data": data})

    @property
    def raw(self) -> Raw | UnsetType:
        """All of them as JSON, if there are any."""
        return Raw(encode_whole(self._blocks)) if self._blocks else UNSET


_decoder = msgspec.json.Decoder(WireAnswer)


def read_completion(body: bytes, hidden: Sequence[str] = (), *, asked_tier: str | None = None) -> ChatCompletion:
    """The completion in a JSON body; UpstreamInvalidResponse when it is none."""
    try:
        answer = decoded(_decoder, body, surrogates=True)
    except UpstreamInvalidResponse:
        raise_error_inside(body, hidden)  # as proxies send them
        raise
    message = ChatMessage()
    texts: list[str] = []
    reasoning: list[str] = []
    calls: list[ToolCall] = []
    thoughts = Thoughts()
    for block in answer.output.message.content:
        if block.text is not None:
            texts.append(block.text)
        elif block.tool_use is not None and not block.tool_use.type:
            calls.append(_call(block.tool_use))
        elif block.reasoning_content is not None:
            reasoning.append(_reasoning(block.reasoning_content, thoughts))
        elif block.citations_content is not None:
            texts += [part.text for part in block.citations_content.content]
    message.content = "".join(texts) or (None if calls else "")
    message.thinking_blocks = thoughts.raw
    if any(reasoning):
        message.reasoning_content = "".join(reasoning)
    if calls:
        message.tool_calls = calls
    choice = Choice(message=message, finish_reason=read_finish(answer.stop_reason or ""))
    completion = ChatCompletion(choices=[choice], usage=read_usage(answer.usage))
    completion.service_tier = read_tier(answer.service_tier, asked_tier)
    return completion


def read_finish(reason: str) -> str:
    """OpenAI's word for a stop reason; raises for one that means failure, and lets unknown ones through."""
    if reason in FAILED_REASONS:
        raise UpstreamInvalidResponse(detail=f"stop reason {reason!r}")
    return FINISH_REASONS.get(reason, reason)


def read_tier(tier: WireTier | None, asked: str | None) -> str | UnsetType:
    """The tier in OpenAI's words; silence means the usual one, which is worth saying only to who asked."""
    used = TIERS.get(tier.type) if tier is not None else None
    return used or ("default" if asked is not None else UNSET)


def read_usage(usage: Any) -> CompletionUsage | None:
    """Token counts with the cached ones inside the prompt; None when they cannot be right."""
    if not isinstance(usage, dict):
        return None
    counts = [usage.get(name) or 0 for name in ("inputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")]
    if any(type(count) is not int or count < 0 for count in counts):
        return None
    cached, written = counts[1:]
    details: dict[str, Any] = {"cached_tokens": cached}
    if written:
        details["cache_write_tokens"] = written
        details["cache_write_tokens_details"] = _writes(usage.get("cacheDetails"), written)
    return completion_usage(
        {
            "prompt_tokens": sum(counts),
            "completion_tokens": usage.get("outputTokens"),
            "prompt_tokens_details": details,
        }
    )


def _writes(details: Any, written: int) -> dict[str, int]:
    """Written tokens by how long they are kept; those of an hour are the long ones."""
    hour = 0
    for detail in details if isinstance(details, list) else ():
        if isinstance(detail, dict) and detail.get("ttl") == "1h" and type(detail.get("inputTokens")) is int:
            hour += detail["inputTokens"]
    hour = max(0, min(hour, written))
    return {"ttl_30m_tokens": written - hour, "ttl_12h_tokens": hour}


def _call(use: WireToolUse) -> ToolCall:
    arguments = msgspec.json.format(bytes(use.input), indent=-1).decode()
    function = FunctionCall(name=use.name or "", arguments=arguments)
    return ToolCall(id=use.tool_use_id or "", type="function", function=function)


def _reasoning(block: WireReasoning, thoughts: Thoughts) -> str:
    """The thoughts in the open."""
    if block.redacted_content is not None:
        thoughts.seal(block.redacted_content)
    if block.reasoning_text is None:
        return ""
    thoughts.add(block.reasoning_text.text, block.reasoning_text.signature)
    return block.reasoning_text.text
