"""Values that whole and streamed answers of the Messages dialect share: usage, stop reasons, frames, ids."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from gateway.encoders.chat_form import AnswerForm
from gateway.ids import answer_id
from gateway.schemas.answer_surrogates import encode_whole
from gateway.schemas.chat_response import CompletionUsage
from gateway.schemas.reasoning_state import ReasoningState, write_state

STOP_REASONS: Mapping[str, str] = {
    "stop": "end_turn",
    "length": "max_tokens",
    "tool_calls": "tool_use",
    "function_call": "tool_use",
    "content_filter": "refusal",
}
#: Service tiers in the words of this dialect; the others have none.
TIERS: Mapping[str, str] = {"default": "standard", "priority": "priority"}
#: Members of an upstream's usage that say nothing about tokens and are passed on.
KEPT_USAGE = ("server_tool_use", "service_tier", "inference_geo", "speed")


def message_id(form: AnswerForm) -> str:
    """The id of the answer: `msg_` and the characters of its completion id."""
    return answer_id("msg_", form.id)


def frame(name: str, document: Any) -> bytes:
    """One event with its name."""
    return b"event: %b\ndata: %b\n\n" % (name.encode(), encode_whole(document))


def sealed_call(call_id: str, extra_content: Raw, models: tuple[str, ...]) -> dict[str, Any]:
    """The block before a call that carries what its model wants back with it, such as Gemini's signatures."""
    state = ReasoningState(models, calls={call_id: extra_content})
    return {"type": "redacted_thinking", "data": write_state(state)}


def messages_usage(usage: CompletionUsage, tier: str | UnsetType | None = UNSET) -> dict[str, Any]:
    """The usage in this dialect, whose `input_tokens` are without those that the cache had or took."""
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    written = 0 if prompt.cache_write_tokens is UNSET else prompt.cache_write_tokens
    out: dict[str, Any] = {
        "input_tokens": max(0, usage.prompt_tokens - prompt.cached_tokens - written),
        "cache_creation_input_tokens": written,
        "cache_read_input_tokens": prompt.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
    lives = prompt.cache_write_tokens_details
    if lives is not UNSET:
        out["cache_creation"] = {
            "ephemeral_5m_input_tokens": max(0, written - lives.ttl_12h_tokens),
            "ephemeral_1h_input_tokens": lives.ttl_12h_tokens,
        }
    if completion.reasoning_tokens:
        out["output_tokens_details"] = {"thinking_tokens": completion.reasoning_tokens}
    name = TIERS.get(tier) if isinstance(tier, str) else None
    if name is not None:
        out["service_tier"] = name
    return out


def with_kept(usage: dict[str, Any], upstream: Any) -> dict[str, Any]:
    """The usage with what the upstream's own says beside tokens."""
    if isinstance(upstream, dict):
        usage |= {name: upstream[name] for name in KEPT_USAGE if upstream.get(name) is not None}
    return usage
