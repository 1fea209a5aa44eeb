"""A chat request as the body of `POST /v1/messages`: a pure function of request, model and traits.

The translation is described in docs/providers/anthropic.md. Schemas and arguments stay `msgspec.Raw`. Fields that the
gateway's field classes refuse or drop are gone before this is called; what is refused here depends on values or on the
model. Sharp edge: Anthropic refuses thinking beside a forced tool call, a prefilled answer, a temperature, or tool
results whose call came without its thinking. An effort is a wish, so the thinking gives way there, and the request is
served.
"""

from __future__ import annotations

import hashlib
from typing import Any

from msgspec import UNSET

from gateway import ChatRequest
from gateway.errors import UnsupportedParameter
from gateway.schemas.chat_messages import AllowedChoice, FunctionChoice, FunctionDefinition
from gateway.schemas.chat_options import JSONObjectFormat, JSONSchemaFormat

from .._shared.chat_parts import LEAST_TOP_P, allowed_among, check_prefill, functions_of, object_schema, stops_of
from .._shared.conversation import check_user_first, conversation
from .._shared.reasoning_effort import CLAUDE_BUDGETS, CLAUDE_LEVELS, limit_with_budget
from .blocks import BlockWriter
from .models import ModelTraits

Body = dict[str, Any]

MAX_USER_ID = 256  # characters
JSON_ONLY = "Answer with a single JSON object, without any text around it and without a code fence."


def chat_body(request: ChatRequest, traits: ModelTraits) -> Body:
    """The body to send for `request`, without the model's name and without `stream`."""
    if request.choices > 1:
        raise UnsupportedParameter("This model does not support 'n' above 1.", param="n")
    talk = conversation(request.messages)
    check_user_first(talk)
    check_prefill(talk, prefill=traits.prefill)
    system, messages = BlockWriter().conversation(talk)
    _trim_prefill(messages)
    body: Body = {"max_tokens": _limit(request, traits), "messages": messages}
    _add_tools(body, request, traits)
    _add_format(body, request, system)
    if system:
        body["system"] = system
    if request.reasoning_effort is not None:
        _add_effort(body, request, traits)
    _add_sampling(body, request, traits)
    user = request.safety_identifier or request.user
    if user:
        body["metadata"] = {"user_id": _user_id(user)}
    return body


def _trim_prefill(messages: list[Body]) -> None:
    """Take the space from the end of an answer to go on with, which Anthropic refuses."""
    last = messages[-1]["content"][-1]
    if messages[-1]["role"] == "assistant" and last["type"] == "text":
        last["text"] = last["text"].rstrip()


def output_limit(request: ChatRequest, traits: ModelTraits) -> int:
    """The highest `max_tokens` that `chat_body` sends for `request`."""
    limit = _limit(request, traits)
    budget = CLAUDE_BUDGETS[str(request.reasoning_effort)] if request.reasoning_effort is not None else 0
    if not budget:
        return limit
    return limit_with_budget(limit, budget, most=traits.max_output_tokens, fixed=request.max_output is not None)[0]


def _limit(request: ChatRequest, traits: ModelTraits) -> int:
    limit = request.max_output or traits.default_max_tokens
    return limit if traits.max_output_tokens is None else min(limit, traits.max_output_tokens)


def _user_id(user: str) -> str:
    """The caller's id of the user; a hash of one that is longer than Anthropic takes."""
    return user if len(user) <= MAX_USER_ID else hashlib.sha256(user.encode()).hexdigest()


# Tools -------------------------------------------------------------------------------------------------------------


def _add_tools(body: Body, request: ChatRequest, traits: ModelTraits) -> None:
    functions = functions_of(request)
    if not functions:
        return
    choice = _tool_choice(request)
    if choice["type"] in {"any", "tool"} and not traits.forced_tools:
        raise UnsupportedParameter("This model decides by itself whether it calls a tool.", param="tool_choice")
    body["tools"] = [_tool(function) for function in allowed_among(functions, request)]
    if request.parallel_tool_calls is False and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    if choice != {"type": "auto"}:
        body["tool_choice"] = choice


def _tool_choice(request: ChatRequest) -> Body:
    choice = request.as_tool_choice
    if isinstance(choice, FunctionChoice):
        return {"type": "tool", "name": choice.function.name}
    mode = choice.allowed_tools.mode if isinstance(choice, AllowedChoice) else choice
    return {"type": {"none": "none", "required": "any"}.get(str(mode), "auto")}


def _tool(function: FunctionDefinition) -> Body:
    tool: Body = {"name": function.name, "input_schema": object_schema(function.parameters)}
    if function.description:
        tool["description"] = function.description
    if function.strict is not None:
        tool["strict"] = function.strict
    return tool


# The form of the answer --------------------------------------------------------------------------------------------


def _add_format(body: Body, request: ChatRequest, system: list[Body]) -> None:
    wanted = request.response_format
    if isinstance(wanted, JSONSchemaFormat) and wanted.json_schema.schema is not UNSET:
        body["output_config"] = {"format": {"type": "json_schema", "schema": wanted.json_schema.schema}}
    elif isinstance(wanted, JSONObjectFormat | JSONSchemaFormat):
        system.append({"type": "text", "text": JSON_ONLY})


# Thinking and sampling -----------------------------------------------------------------------------------------------


def _add_effort(body: Body, request: ChatRequest, traits: ModelTraits) -> None:
    effort = str(request.reasoning_effort)
    if traits.thinking_mode == "budget":
        _add_budget(body, request, traits, CLAUDE_BUDGETS[effort])
    elif traits.thinking_mode == "adaptive" and effort == "none" and traits.thinking_off:
        body["thinking"] = {"type": "disabled"}
    elif traits.thinking_mode == "adaptive":
        level = CLAUDE_LEVELS.get(effort, "low")  # none, where thinking cannot be turned off: as little as there is
        body.setdefault("output_config", {})["effort"] = traits.efforts.get(effort) or traits.efforts.get(level, level)
        if effort == "none" or _is_forced(body) or body["messages"][-1]["role"] == "assistant":
            return
        body["thinking"] = {"type": "adaptive", "display": traits.thinking_display}
        _add_room(body, request, traits, CLAUDE_BUDGETS[effort])


def _add_budget(body: Body, request: ChatRequest, traits: ModelTraits, budget: int) -> None:
    if budget == 0:
        body["thinking"] = {"type": "disabled"}
        return
    if _is_forced(body) or not _may_think(body["messages"]):
        return
    budget = _add_room(body, request, traits, budget)
    if budget:
        body["thinking"] = {"type": "enabled", "budget_tokens": budget}


def _add_room(body: Body, request: ChatRequest, traits: ModelTraits, budget: int) -> int:
    """Make room for thinking beside the answer, unless the caller set the limit; the budget there is room for."""
    fixed = request.max_output is not None
    body["max_tokens"], budget = limit_with_budget(
        body["max_tokens"], budget, most=traits.max_output_tokens, fixed=fixed
    )
    return budget


def _is_forced(body: Body) -> bool:
    return body.get("tool_choice", {}).get("type") in {"any", "tool"}


def _may_think(messages: list[Body]) -> bool:
    """Whether a thinking budget is accepted after these turns: a tool call under way must have begun with thinking."""
    last = messages[-1]
    if last["role"] == "assistant":
        return False
    if len(messages) < 2 or last["content"][0]["type"] != "tool_result":
        return True
    return messages[-2]["content"][0]["type"] in {"thinking", "redacted_thinking"}


def _add_sampling(body: Body, request: ChatRequest, traits: ModelTraits) -> None:
    if stops := stops_of(request):
        body["stop_sequences"] = stops
    if not traits.sampling:
        return
    thinks = body.get("thinking", {}).get("type") in {"enabled", "adaptive"}
    if request.temperature is not None and not thinks:
        body["temperature"] = min(request.temperature, 1.0)
    elif request.top_p is not None and not (thinks and request.top_p < LEAST_TOP_P):
        body["top_p"] = request.top_p
