"""What a Messages request demands beside its conversation, in the fields of a chat request.

`chat_terms(sent)` writes the fields. A field that chat has no word for is left out and named in `left_out`; a demand
that only an upstream of this dialect can meet is named in `only_native`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol

from msgspec import UNSET, Struct, field

from gateway.schemas.messages_native import dropped_tools, vendor_tools
from gateway.schemas.messages_options import (
    AnyChoice,
    BudgetThinking,
    CallerMetadata,
    JsonOutput,
    MessagesToolChoice,
    NamedChoice,
    NoChoice,
    NoThinking,
    OutputConfig,
    Thinking,
    ToolDefinition,
)
from gateway.schemas.schema_errors import invalid

MAX_STOPS = 4  # of a chat request
MAX_USER = 64  # characters; OpenAI refuses a longer `user`
#: The least budget of tokens for an effort, from the highest.
BUDGETS = ((16_384, "high"), (4_096, "medium"), (0, "low"))
#: Fields that only upstreams of this dialect know.
OPAQUE = (
    "cache_control", "compaction", "container", "context_management", "diagnostics", "inference_geo",
    "mcp_servers", "user_profile_id", "workspace_id",
)  # fmt: skip


class Demands(Protocol):
    """The fields of the request that are read here."""

    stop_sequences: list[str] | None
    temperature: float | None
    top_p: float | None
    top_k: int | None
    tools: list[ToolDefinition] | None
    tool_choice: MessagesToolChoice | None
    thinking: Thinking | None
    output_config: OutputConfig | None
    output_format: JsonOutput | None
    metadata: CallerMetadata | None
    service_tier: Any
    speed: Any


class ChatTerms(Struct):
    """Fields of the chat request, and what they do not say."""

    fields: dict[str, Any] = field(default_factory=dict)
    left_out: list[str] = field(default_factory=list)
    only_native: str = ""


def chat_terms(sent: Demands) -> ChatTerms:
    """The fields of the chat request that `sent` amounts to, except for its messages."""
    terms = ChatTerms()
    _add_sampling(terms, sent)
    _add_tools(terms, sent.tools or (), sent.tool_choice)
    effort = _effort(sent.thinking, sent.output_config)
    if effort is not None:
        terms.fields["reasoning_effort"] = effort
    wanted = sent.output_config.format if sent.output_config is not None else None
    wanted = wanted or sent.output_format
    if wanted is not None:
        schema = {"name": "answer", "schema": wanted.schema, "strict": True}
        terms.fields["response_format"] = {"type": "json_schema", "json_schema": schema}
    if sent.metadata is not None and sent.metadata.user_id:
        terms.fields["user"] = _user(sent.metadata.user_id)
    if sent.service_tier == "standard_only":
        terms.fields["service_tier"] = "default"
    terms.left_out += [name for name in OPAQUE if getattr(sent, name) is not UNSET]
    if sent.speed == "fast":
        terms.left_out.append("speed")
    return terms


def _add_sampling(terms: ChatTerms, sent: Demands) -> None:
    for name in ("temperature", "top_p", "top_k"):
        if getattr(sent, name) is not None:
            terms.fields[name] = getattr(sent, name)
    stops = sent.stop_sequences or []
    if stops:
        terms.fields["stop"] = stops[:MAX_STOPS]
    if len(stops) > MAX_STOPS:
        terms.left_out.append("stop_sequences")


def _user(user: str) -> str:
    """The caller's id of the user; a hash of one that is too long."""
    return user if len(user) <= MAX_USER else hashlib.sha256(user.encode("utf-8", "surrogatepass")).hexdigest()


# Tools -------------------------------------------------------------------------------------------------------------


def _add_tools(terms: ChatTerms, tools: Sequence[ToolDefinition], choice: MessagesToolChoice | None) -> None:
    own = [tool for tool in tools if tool.is_own]
    terms.left_out += dropped_tools({tool.type for tool in vendor_tools(tools)})
    if own:
        terms.fields["tools"] = [{"type": "function", "function": _function(tool)} for tool in own]
    if choice is None:
        return
    if isinstance(choice, AnyChoice | NamedChoice) and not tools:
        raise invalid("tool_choice", "it is only allowed when 'tools' are given")
    if isinstance(choice, NamedChoice):
        if choice.name not in {tool.name for tool in tools}:
            raise invalid("tool_choice.name", "it names a tool that is not in 'tools'")
        if choice.name not in {tool.name for tool in own}:
            terms.only_native = "tool_choice"
            return
        terms.fields["tool_choice"] = {"type": "function", "function": {"name": choice.name}}
    elif isinstance(choice, AnyChoice) and not own:
        terms.only_native = "tool_choice"
        return
    elif isinstance(choice, AnyChoice):
        terms.fields["tool_choice"] = "required"
    elif isinstance(choice, NoChoice) and own:
        terms.fields["tool_choice"] = "none"
    if own and not isinstance(choice, NoChoice) and choice.disable_parallel_tool_use:
        terms.fields["parallel_tool_calls"] = False


def _function(tool: ToolDefinition) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name, "parameters": tool.input_schema}
    if tool.description is not None:
        function["description"] = tool.description
    if tool.strict is not None:
        function["strict"] = tool.strict
    return function


# Thinking ----------------------------------------------------------------------------------------------------------


def _effort(thinking: Thinking | None, output: OutputConfig | None) -> str | None:
    """The effort that thinking and its effort amount to; None for the model's default."""
    if isinstance(thinking, NoThinking):
        return "none"
    if output is not None and output.effort is not None:
        return output.effort
    if isinstance(thinking, BudgetThinking):
        return next(effort for least, effort in BUDGETS if thinking.budget_tokens >= least)
    return None if thinking is None else "high"  # what Anthropic takes for adaptive thinking
