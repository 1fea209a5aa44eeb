"""A chat request as the body of Converse and ConverseStream: a pure function of request and model.

The translation is described in docs/providers/bedrock.md. Schemas and arguments stay `msgspec.Raw`. Fields that the
gateway's field classes refuse or drop are gone before this is called; what is refused here depends on values or on the
model. Sharp edge: Bedrock wants a `toolConfig` wherever the history holds a call, so one is made up from the names in
the history when the caller sends no tools any more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET

from gateway import ChatRequest
from gateway.errors import UnsupportedParameter
from gateway.schemas.chat_messages import AllowedChoice, FunctionChoice, FunctionDefinition
from gateway.schemas.chat_options import JSONObjectFormat, JSONSchema, JSONSchemaFormat

from .._shared.chat_parts import (
    LEAST_TOP_P,
    allowed_among,
    check_prefill,
    functions_of,
    object_schema,
    stops_of,
    unsupported,
)
from .._shared.conversation import check_user_first, conversation
from .._shared.reasoning_effort import CLAUDE_BUDGETS, CLAUDE_LEVELS, limit_with_budget
from ..anthropic.models import ModelTraits
from .blocks import BlockWriter
from .models import Model

Body = dict[str, Any]

MAX_INT = 2**31 - 1  # Bedrock's integers

TIERS: Mapping[str, str] = {"default": "default", "flex": "flex", "priority": "priority", "fast": "priority"}
MAX_METADATA = 256  # characters of a name or value
_METADATA = re.compile(r"[a-zA-Z0-9\s:_@$#=/+,.-]*", re.ASCII)

_encoder = msgspec.json.Encoder()


def converse_body(request: ChatRequest, model: Model) -> bytes:
    """The JSON to send for `request` to `model`."""
    talk = conversation(request.messages)
    check_user_first(talk)
    check_prefill(talk, prefill=model.traits.prefill)
    system, messages = BlockWriter(cache_points=model.cache_points).conversation(talk)
    body: Body = {"messages": messages}
    if system:
        body["system"] = system
    _add_tools(body, request, model.traits)
    _add_format(body, request)
    inference: Body = {}
    if request.max_output is not None:
        inference["maxTokens"] = min(request.max_output, model.traits.max_output_tokens or MAX_INT, MAX_INT)
    thinking: Body = {}
    if request.reasoning_effort is not None:
        thinking = _add_effort(body, inference, request, model.traits)
    _add_sampling(inference, request, model, thinks=thinking.get("type") in {"enabled", "adaptive"})
    if inference:
        body["inferenceConfig"] = inference
    if additional := {**model.additional_fields, **({"thinking": thinking} if thinking else {})}:
        body["additionalModelRequestFields"] = additional
    _add_hints(body, request)
    return _encoder.encode(body)


# Tools -------------------------------------------------------------------------------------------------------------


def _add_tools(body: Body, request: ChatRequest, traits: ModelTraits) -> None:
    functions = functions_of(request)
    if not functions or request.as_tool_choice == "none":
        # There is no way to forbid calls that the history shows to be possible: the model keeps the choice.
        called = _called(body["messages"])
        if called:
            body["toolConfig"] = {
                "tools": [_tool(function) for function in functions or map(FunctionDefinition, called)]
            }
        return
    functions = allowed_among(functions, request)
    choice = _tool_choice(request)
    if choice and not traits.forced_tools:
        raise UnsupportedParameter("This model decides by itself whether it calls a tool.", param="tool_choice")
    body["toolConfig"] = {"tools": [_tool(function) for function in functions], **choice}


def _tool_choice(request: ChatRequest) -> Body:
    """The choice where it forces a call; auto goes unsaid, since many models take no choice at all."""
    choice = request.as_tool_choice
    if isinstance(choice, FunctionChoice):
        return {"toolChoice": {"tool": {"name": choice.function.name}}}
    mode = choice.allowed_tools.mode if isinstance(choice, AllowedChoice) else choice
    return {"toolChoice": {"any": {}}} if mode == "required" else {}


def _called(messages: list[Body]) -> list[str]:
    """Names of the functions that the history shows, each once."""
    uses = [block["toolUse"]["name"] for turn in messages for block in turn["content"] if "toolUse" in block]
    return list(dict.fromkeys(uses))


def _tool(function: FunctionDefinition) -> Body:
    spec: Body = {"name": function.name}
    if function.description:
        spec["description"] = function.description
    spec["inputSchema"] = {"json": object_schema(function.parameters)}
    if function.strict is not None:
        spec["strict"] = function.strict
    return {"toolSpec": spec}


# The form of the answer --------------------------------------------------------------------------------------------


def _add_format(body: Body, request: ChatRequest) -> None:
    wanted = request.response_format
    if isinstance(wanted, JSONObjectFormat):
        raise unsupported("response_format.type", "this model writes JSON to a schema only; use 'json_schema'")
    if isinstance(wanted, JSONSchemaFormat):
        structure = {"jsonSchema": _schema(wanted.json_schema)}
        body["outputConfig"] = {"textFormat": {"type": "json_schema", "structure": structure}}


def _schema(wanted: JSONSchema) -> Body:
    """The schema, which Bedrock takes as text."""
    text = '{"type":"object"}' if wanted.schema is UNSET else bytes(wanted.schema).decode()
    schema: Body = {"schema": text, "name": wanted.name}
    if wanted.description:
        schema["description"] = wanted.description
    return schema


# Thinking and sampling -----------------------------------------------------------------------------------------------


def _add_effort(body: Body, inference: Body, request: ChatRequest, traits: ModelTraits) -> Body:
    """Say how much to think; what Claude wants to know of it in its own words is returned."""
    effort = str(request.reasoning_effort)
    if traits.thinking_mode == "budget":
        return _budget(body, inference, traits, CLAUDE_BUDGETS[effort])
    if traits.thinking_mode != "adaptive":
        return {}
    if effort == "none" and traits.thinking_off:
        return {"type": "disabled"}
    level = CLAUDE_LEVELS.get(effort, "low")  # none, where thinking cannot be turned off: as little as there is
    body.setdefault("outputConfig", {})["effort"] = traits.efforts.get(effort) or traits.efforts.get(level, level)
    if effort == "none" or _is_forced(body) or body["messages"][-1]["role"] == "assistant":
        return {}
    return {"type": "adaptive", "display": traits.thinking_display}


def _budget(body: Body, inference: Body, traits: ModelTraits, budget: int) -> Body:
    if budget == 0:
        return {"type": "disabled"}
    if _is_forced(body) or not _may_think(body["messages"]):
        return {}
    given = inference.get("maxTokens")  # a limit of the caller's stays: it is what money was held for
    inference["maxTokens"], budget = limit_with_budget(
        given or traits.default_max_tokens, budget, most=traits.max_output_tokens, fixed=given is not None
    )
    return {"type": "enabled", "budget_tokens": budget} if budget else {}


def _is_forced(body: Body) -> bool:
    return "toolChoice" in body.get("toolConfig", {})


def _may_think(messages: list[Body]) -> bool:
    """Whether a thinking budget is accepted after these turns: a tool call under way must have begun with thinking."""
    last = messages[-1]
    if last["role"] == "assistant":
        return False
    if len(messages) < 2 or "toolResult" not in last["content"][0]:
        return True
    return "reasoningContent" in messages[-2]["content"][0]


def _add_sampling(inference: Body, request: ChatRequest, model: Model, *, thinks: bool) -> None:
    if stops := stops_of(request):
        inference["stopSequences"] = stops
    if not model.traits.sampling:
        return
    if request.temperature is not None and not thinks:
        inference["temperature"] = min(request.temperature, 1.0)
        if model.claude:
            return  # which takes one of the two
    if request.top_p is not None and not (thinks and request.top_p < LEAST_TOP_P):
        inference["topP"] = request.top_p


# Hints -------------------------------------------------------------------------------------------------------------


def _add_hints(body: Body, request: ChatRequest) -> None:
    """What Bedrock takes of the hints; the rest goes unsaid, for a hint must never cost the answer."""
    tier = TIERS.get(request.service_tier or "")
    if tier:
        body["serviceTier"] = {"type": tier}
    metadata = {
        name: value for name, value in (request.metadata or {}).items() if name and _fits(name) and _fits(value)
    }
    if metadata:
        body["requestMetadata"] = metadata


def _fits(text: str) -> bool:
    return len(text) <= MAX_METADATA and _METADATA.fullmatch(text) is not None
