"""Cohere's whole answer as a `ChatCompletion`: text, thinking, tool calls, why it ended, what it used.

The shapes here also serve `events`. A tool plan and thoughts both come out as `reasoning_content`; citations end here.
Sharp edge: counts are floats, and there are two of them: `tokens` is what the model saw and made, `billed_units` what
Cohere charges for, which is less where Cohere adds a prompt of its own. The first are the wire's counters.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from gateway import (
    ChatCompletion,
    ChatMessage,
    Choice,
    CompletionUsage,
    FunctionCall,
    ToolCall,
    completion_usage,
)
from gateway.errors import GatewayError, UpstreamError, UpstreamTimeout
from gateway.plugins.upstream_errors import error_of_document
from gateway.schemas.answer_surrogates import whole

from .._shared.documents import decoded, raise_error_inside

T = TypeVar("T")

FINISH_REASONS: Mapping[str, str] = {
    "COMPLETE": "stop",
    "STOP_SEQUENCE": "stop",
    "MAX_TOKENS": "length",
    "TOOL_CALL": "tool_calls",
}
FAILED_REASONS = frozenset({"ERROR", "TIMEOUT"})
FLOOR = -9999.0  # the least log probability there is on the wire


class WireContent(Struct):
    """A piece of text or of thought."""

    text: str | None = None
    thinking: str | None = None


class WireFunction(Struct):
    """A function that the model calls."""

    name: str | None = None
    arguments: str | None = None


class WireToolCall(Struct):
    """A call; in a stream its later pieces have no id."""

    id: str | None = None
    function: WireFunction | None = None


class WireLogprobs(Struct):
    """A stretch of text and the log probabilities of its tokens."""

    text: str | None = None
    logprobs: list[float] | None = None


class WireMessage(Struct):
    """What the model said."""

    content: list[WireContent] | str | None = None
    tool_calls: list[WireToolCall] | None = None
    tool_plan: str | None = None


class WireAnswer(Struct):
    """A whole answer."""

    message: WireMessage
    finish_reason: str | None = None
    usage: Any = None
    logprobs: list[WireLogprobs] | None = None


_decoder = msgspec.json.Decoder(WireAnswer)


def read_completion(body: bytes, hidden: Sequence[str] = ()) -> ChatCompletion:
    """The answer in a JSON body; an error that rides in it is raised."""
    answer = read_document(_decoder, body, hidden, surrogates=True)
    reason = answer.finish_reason or ""
    if reason in FAILED_REASONS:
        raise failure(reason)
    said = answer.message
    content = [WireContent(said.content)] if isinstance(said.content, str) else said.content or []
    message = ChatMessage(content="".join(piece.text for piece in content if piece.text))
    reasoning = (said.tool_plan or "") + "".join(piece.thinking for piece in content if piece.thinking)
    if reasoning:
        message.reasoning_content = reasoning
    if said.tool_calls:
        message.tool_calls = [_call(call) for call in said.tool_calls]
        message.content = message.content or None
    choice = Choice(message=message, finish_reason=finish_reason(reason))
    if answer.logprobs:
        choice.logprobs = read_logprobs(answer.logprobs)
    return ChatCompletion(choices=[choice], usage=read_usage(answer.usage))


def read_document(
    decoder: msgspec.json.Decoder[T],
    data: bytes,
    hidden: Sequence[str] = (),
    *,
    strict: bool = False,
    surrogates: bool = False,
) -> T:
    """What `data` holds, as `decoded`; raises the error that it holds instead, or UpstreamInvalidResponse."""
    if b'"error"' in data:  # the word may also stand in what the model said
        raise_error_inside(data, hidden)
    return decoded(decoder, data, strict=strict, surrogates=surrogates)


def finish_reason(reason: str) -> str:
    """OpenAI's word for a finish reason; an unknown one goes through, and the gateway decides what it is worth."""
    return FINISH_REASONS.get(reason, reason)


def failure(reason: str, words: object = None, hidden: Sequence[str] = ()) -> GatewayError:
    """The error that an answer ended in: by what Cohere says about it, if that is anything."""
    if reason == "TIMEOUT":
        return UpstreamTimeout(detail="finish reason 'TIMEOUT'")
    return error_of_document(words, hidden) if words else UpstreamError(detail=f"finish reason {reason!r}")


def read_logprobs(items: Sequence[WireLogprobs]) -> dict[str, Any]:
    """Log probabilities in OpenAI's form; a stretch of several tokens stays one, as nothing says where they meet."""
    content = []
    for item in items:
        text = whole(item.text or "")
        total = math.fsum(item.logprobs or ())
        value = max(total, FLOOR) if math.isfinite(total) else FLOOR
        content.append({"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []})
    return {"content": content, "refusal": None}


def read_usage(usage: Any) -> CompletionUsage | None:
    """Token counts, from what was billed where nothing else was counted; None when they cannot be right."""
    if not isinstance(usage, dict):
        return None
    counts = next((found for name in ("tokens", "billed_units") if _counts(found := usage.get(name))), None)
    if counts is None:
        return None
    prompt: dict[str, Any] = {}
    if usage.get("cached_tokens") is not None:
        prompt["cached_tokens"] = usage["cached_tokens"]
    document: dict[str, Any] = {
        "prompt_tokens": counts.get("input_tokens"),
        "completion_tokens": counts.get("output_tokens"),
        "prompt_tokens_details": prompt,
    }
    billed = usage.get("billed_units")
    if isinstance(billed, dict) and billed.get("search_units"):
        document["search_units"] = billed["search_units"]
    return completion_usage(document)


def _counts(found: Any) -> bool:
    return isinstance(found, dict) and any(found.get(name) for name in ("input_tokens", "output_tokens"))


def _call(call: WireToolCall) -> ToolCall:
    function = call.function or WireFunction()
    called = FunctionCall(name=function.name or "", arguments=function.arguments or "{}")
    return ToolCall(id=call.id or "", type="function", function=called)
