"""A whole Messages answer as a `ChatCompletion`: text, thinking, tool calls, why it ended, what it used.

The shapes here also serve `events`: a stream is the same message in pieces. What the gateway has no place for, such as
citations and the blocks of tools that run at Anthropic, ends here. Sharp edge: Anthropic counts cached tokens beside
`input_tokens`, the gateway inside `prompt_tokens`.
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
from gateway.plugins.upstream_errors import error_of_document
from gateway.schemas.answer_surrogates import encode_whole

from .._shared.documents import UNREADABLE, decoded, json_object
from .._shared.failed_finish import check_finish

FINISH_REASONS: Mapping[str, str] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",  # only with tools that run at Anthropic, which are not asked for
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "tool_use": "tool_calls",
    "refusal": "content_filter",
}
TIERS: Mapping[str, str] = {"standard": "default", "priority": "priority"}


class WireBlock(Struct):
    """A content block of any type; the fields of the others are empty, or null at some servers."""

    type: str | None = "text"
    text: str | None = ""
    thinking: str | None = ""
    signature: str | None = ""
    data: str | None = ""
    id: str | None = ""
    name: str | None = ""
    input: Raw = Raw(b"{}")


class StopDetails(Struct):
    """Why the model declined, if it says."""

    category: Any = None
    explanation: Any = None

    @property
    def text(self) -> str | None:
        """The explanation, where there is one."""
        return self.explanation if isinstance(self.explanation, str) and self.explanation else None


class WireMessage(Struct):
    """An answer, whole or as a stream begins it."""

    content: list[WireBlock] | str
    stop_reason: str | None = None
    stop_details: StopDetails | None = None
    usage: dict[str, Any] | None = None

    @property
    def blocks(self) -> list[WireBlock]:
        """The content, which is a text at some servers."""
        return [WireBlock(text=self.content)] if isinstance(self.content, str) else self.content


class WireAnswer(Struct):
    """What tells an error in a 200 from an answer."""

    type: str = ""
    error: Any = None


_message_decoder = msgspec.json.Decoder(WireMessage)
_answer_decoder = msgspec.json.Decoder(WireAnswer)


def read_completion(body: bytes, hidden: Sequence[str] = ()) -> ChatCompletion:
    """The answer in a JSON body; an error that rides in it is raised."""
    answer = decoded(_answer_decoder, body)
    if answer.error or answer.type == "error":
        raise error_of_document(answer.error or json_object(body), hidden)
    message = decoded(_message_decoder, body, surrogates=True)
    choice = Choice(message=_chat_message(message), finish_reason=finish_reason(message.stop_reason))
    usage = message.usage or {}
    return ChatCompletion(choices=[choice], usage=read_usage(usage), service_tier=used_tier(usage))


def finish_reason(reason: str | None) -> str:
    """OpenAI's word for a stop reason; an unknown one goes through, and the gateway decides what it is worth."""
    check_finish(reason or "")
    return FINISH_REASONS.get(reason or "", reason or "")


def used_tier(usage: Mapping[str, Any]) -> str:
    """The service tier that was used, in OpenAI's words. The caller's wish was not sent, so silence means the usual."""
    return TIERS.get(str(usage.get("service_tier")), "default")


def thinking_blocks(blocks: Sequence[WireBlock]) -> Raw | UnsetType:
    """What a caller must send back for the thinking to count as the model's own, if there was any."""
    kept = [
        {"type": block.type, "data": block.data or ""}
        if block.type == "redacted_thinking"
        else {"type": block.type, "thinking": block.thinking or "", "signature": block.signature or ""}
        for block in blocks
        if block.type in {"thinking", "redacted_thinking"}
    ]
    return Raw(encode_whole(kept)) if kept else UNSET


def read_usage(usage: Mapping[str, Any]) -> CompletionUsage | None:
    """The counts of one call; None when they cannot be right, so that the gateway estimates.

    The counts of a compaction are beside those of the answer, and charged too.
    """
    parts = [usage, *_compactions(usage)]
    lives, details = [_object(part, "cache_creation") for part in parts], _object(usage, "output_tokens_details")
    try:
        fresh, output = _total(parts, "input_tokens"), _total(parts, "output_tokens")
        read, written = _total(parts, "cache_read_input_tokens"), _total(parts, "cache_creation_input_tokens")
        short, long = _total(lives, "ephemeral_5m_input_tokens"), _total(lives, "ephemeral_1h_input_tokens")
        thought = _count(details, "thinking_tokens")
    except ValueError:
        return None
    written = written or short + long  # some servers of the dialect send the parts alone
    prompt: dict[str, Any] = {"cached_tokens": read}
    if written:
        prompt["cache_write_tokens"] = written
    if written and (short or long):
        prompt["cache_write_tokens_details"] = {"ttl_30m_tokens": short, "ttl_12h_tokens": long}
    document: dict[str, Any] = {
        "prompt_tokens": fresh + read + written,
        "completion_tokens": output,
        "prompt_tokens_details": prompt,
        "completion_tokens_details": {"reasoning_tokens": min(thought, output)},
    }
    if tools := _object(usage, "server_tool_use"):
        document["server_tool_use"] = tools
    return completion_usage(document)


def _compactions(usage: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = usage.get("iterations")
    listed = found if isinstance(found, list) else []
    return [one for one in listed if isinstance(one, dict) and one.get("type") == "compaction"]


def _total(parts: Sequence[Mapping[str, Any]], name: str) -> int:
    return sum(_count(part, name) for part in parts)


def _object(usage: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = usage.get(name)
    return value if isinstance(value, dict) else {}


def _count(usage: Mapping[str, Any], name: str) -> int:
    """A count that may be absent; ValueError for one that is negative or no whole number."""
    value = usage.get(name)
    if value is None:
        return 0
    if type(value) is not int or value < 0:
        raise ValueError(name)
    return value


def _chat_message(message: WireMessage) -> ChatMessage:
    blocks = message.blocks
    texts = [block.text or "" for block in blocks if block.type == "text"]
    out = ChatMessage(content="".join(texts))
    reasoning = "".join(block.thinking or "" for block in blocks if block.type == "thinking")
    if reasoning:
        out.reasoning_content = reasoning
    out.thinking_blocks = thinking_blocks(blocks)
    calls = [_tool_call(block) for block in blocks if block.type == "tool_use"]
    if calls:
        out.tool_calls = calls
        out.content = out.content or None
    if message.stop_reason == "refusal" and message.stop_details is not None:
        out.refusal = message.stop_details.text
    return out


def _tool_call(block: WireBlock) -> ToolCall:
    arguments = compact(block.input)
    return ToolCall(block.id or "", "function", FunctionCall(name=block.name or "", arguments=arguments))


def compact(value: Raw) -> str:
    """The JSON text of a call's input, without space; an input may be such a text. What is no object counts as none."""
    text = msgspec.json.format(bytes(value), indent=-1)
    if text.startswith(b'"'):
        try:
            text = msgspec.json.format(msgspec.json.decode(text, type=str).encode(), indent=-1)
        except UNREADABLE:
            return "{}"
    return text.decode() if text.startswith(b"{") else "{}"
