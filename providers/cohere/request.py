"""A chat request as the body of Cohere's `POST /v2/chat`: a pure function of request and model.

The translation is described in docs/providers/cohere.md. Roles and tools are close to OpenAI's, so messages keep their
order and schemas stay `msgspec.Raw`. Fields that the gateway's field classes refuse or drop are gone before this is
called. Sharp edge: Cohere's ranges are narrower than the wire's. Sampling fields are brought into them, since `top_p:
1`, which many clients always send, would be a 422.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway import ChatRequest
from gateway.errors import InvalidType, OutOfRange
from gateway.schemas.chat_messages import (
    AllowedChoice,
    AssistantMessage,
    CustomToolCall,
    DeveloperMessage,
    FunctionChoice,
    FunctionDefinition,
    FunctionToolCall,
    ImagePart,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
    UserPart,
)
from gateway.schemas.chat_options import JSONObjectFormat, JSONSchemaFormat

from .._shared.chat_parts import NO_PARAMETERS, allowed_among, functions_of, unsupported
from .._shared.conversation import Placed, conversation, joined_text
from .._shared.reasoning_effort import CLAUDE_BUDGETS, limit_with_budget
from .models import ModelTraits

Body = dict[str, Any]

MAX_K = 500  # of top_k; 0 is off
NULL = Raw(b"null")

_encoder = msgspec.json.Encoder()


def chat_body(request: ChatRequest, model: str, traits: ModelTraits, *, stream: bool) -> bytes:
    """The JSON to send for `request` to the upstream's `model`."""
    talk = conversation(request.messages)
    placed = [*talk.system, *(one for turn in talk.turns for one in turn.messages)]
    body: Body = {"model": model, "messages": [_message(one) for one in placed]}
    if stream:
        body["stream"] = True
    _add_tools(body, request)
    _add_format(body, request)
    if request.max_output is not None:
        body["max_tokens"] = request.max_output
    _add_sampling(body, request)
    if request.logprobs:
        body["logprobs"] = True
    if traits.thinking and request.reasoning_effort is not None:
        body["thinking"] = _thinking(request, CLAUDE_BUDGETS[request.reasoning_effort])
    if traits.safety_mode is not None:
        body["safety_mode"] = traits.safety_mode
    return _encoder.encode(body)


# Messages ----------------------------------------------------------------------------------------------------------


def _message(placed: Placed) -> Body:
    message = placed.message
    if isinstance(message, SystemMessage | DeveloperMessage):
        return {"role": "system", "content": joined_text(message.content)}
    if isinstance(message, ToolMessage):
        content = joined_text(message.content)
        return {"role": "tool", "tool_call_id": message.tool_call_id, "content": content}
    if isinstance(message, AssistantMessage):
        return _assistant(message, placed.path)
    return _user(message, placed.path)


def _user(message: UserMessage, path: str) -> Body:
    if isinstance(message.content, str):
        return {"role": "user", "content": message.content}
    parts = [_part(part, f"{path}.content[{position}]") for position, part in enumerate(message.content)]
    return {"role": "user", "content": parts}


def _part(part: UserPart, path: str) -> Body:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, ImagePart):
        image: Body = {"url": part.image_url.url}
        if part.image_url.detail in {"low", "high", "auto"}:
            image["detail"] = part.image_url.detail
        return {"type": "image_url", "image_url": image}
    raise unsupported(path, "this model takes text and images only")


def _assistant(message: AssistantMessage, path: str) -> Body:
    if message.audio is not None and not (message.content or message.tool_calls):
        raise unsupported(f"{path}.audio", "this model cannot hear an earlier spoken answer")
    body: Body = {"role": "assistant"}
    text = "".join(_texts(message))
    if message.tool_calls:
        body["tool_calls"] = [
            _tool_call(call, f"{path}.tool_calls[{position}]") for position, call in enumerate(message.tool_calls)
        ]
        plan = message.reasoning_content or message.reasoning
        if plan:
            body["tool_plan"] = plan  # what a plan came out as
    if text or not message.tool_calls:
        body["content"] = text
    return body


def _texts(message: AssistantMessage) -> Iterator[str]:
    """What the assistant said, refusals too."""
    content = message.content
    if isinstance(content, str):
        yield content
    for part in content if isinstance(content, list) else ():
        yield part.refusal if isinstance(part, RefusalPart) else part.text
    yield message.refusal or ""


def _tool_call(call: FunctionToolCall | CustomToolCall, path: str) -> Body:
    if isinstance(call, CustomToolCall):
        raise unsupported(f"{path}.type", "this model has no custom tools")
    function = {"name": call.function.name, "arguments": call.function.arguments.strip() or "{}"}
    return {"id": call.id, "type": "function", "function": function}


# Tools -------------------------------------------------------------------------------------------------------------


def _add_tools(body: Body, request: ChatRequest) -> None:
    functions = functions_of(request)
    choice = request.as_tool_choice
    if isinstance(choice, FunctionChoice):
        raise unsupported("tool_choice", "this model cannot be told which tool to call; use 'required'")
    if isinstance(choice, AllowedChoice):
        functions = allowed_among(functions, request)
        choice = choice.allowed_tools.mode
    if not functions:
        return
    body["tools"] = [_tool(function) for function in functions]
    if any(function.strict for function in functions):
        body["strict_tools"] = True  # for all of them or for none
    if choice in ("required", "none"):
        body["tool_choice"] = choice.upper()


def _tool(function: FunctionDefinition) -> Body:
    described: Body = {"name": function.name}
    if function.description:
        described["description"] = function.description
    described["parameters"] = NO_PARAMETERS if function.parameters is UNSET else function.parameters
    return {"type": "function", "function": described}


# The form of the answer, sampling, thinking ------------------------------------------------------------------------


def _add_format(body: Body, request: ChatRequest) -> None:
    wanted = request.response_format
    if isinstance(wanted, JSONObjectFormat | JSONSchemaFormat):
        body["response_format"] = {"type": "json_object"}
    if isinstance(wanted, JSONSchemaFormat) and wanted.json_schema.schema is not UNSET:
        body["response_format"]["json_schema"] = wanted.json_schema.schema


def _add_sampling(body: Body, request: ChatRequest) -> None:
    if request.temperature is not None:
        body["temperature"] = request.temperature
    if request.top_p is not None:
        body["p"] = min(max(request.top_p, 0.01), 0.99)
    stops = [request.stop] if isinstance(request.stop, str) else request.stop
    if stops:
        body["stop_sequences"] = stops
    if request.seed is not None:
        body["seed"] = request.seed % 2**64  # without a sign, and another one for every seed all the same
    if request.frequency_penalty is not None:
        body["frequency_penalty"] = min(max(request.frequency_penalty, 0.0), 1.0)
    if request.presence_penalty is not None:
        body["presence_penalty"] = min(max(request.presence_penalty, 0.0), 1.0)
    k = request.fields.get("k", NULL)
    if k != NULL:
        body["k"] = _k(k)


def _k(raw: Raw) -> int:
    """Cohere's own field for the number of tokens to choose among; no field of `ChatRequest`."""
    try:
        k = msgspec.json.decode(raw, type=int)
    except msgspec.ValidationError:
        raise InvalidType("Invalid type for 'k': expected an integer.", param="k") from None
    if not 0 <= k <= MAX_K:
        code = "integer_below_min_value" if k < 0 else "integer_above_max_value"
        raise OutOfRange(f"Invalid 'k': expected a value between 0 and {MAX_K}.", code=code, param="k")
    return k


def _thinking(request: ChatRequest, budget: int) -> Body:
    """How much to think; where the caller's limit leaves no room to, not at all."""
    if request.max_output is not None:
        _, budget = limit_with_budget(request.max_output, budget, fixed=True)
    return {"type": "enabled", "token_budget": budget} if budget else {"type": "disabled"}
