"""Parts of a chat request for dialects other than OpenAI's: functions, stop texts, turns as messages of blocks.

Anthropic, Bedrock and Cohere share the functions; Anthropic and Bedrock also share the rules of Claude models.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from gateway import ChatRequest
from gateway.errors import InvalidType, InvalidValue, UnsupportedValue
from gateway.schemas.chat_messages import AllowedChoice, FunctionChoice, FunctionDefinition, FunctionTool

from .conversation import Conversation, Placed

Block = dict[str, Any]

OBJECT, NULL = Raw(b'"object"'), Raw(b"null")
_table = msgspec.json.Decoder(dict[str, Raw])
NO_PARAMETERS = Raw(b'{"type":"object","properties":{}}')
# Request fields that every dialect here can express; each provider adds its own.
CHAT_FIELDS = frozenset(
    {
        "tools",
        "tool_choice",
        "functions",
        "function_call",
        "response_format",
        "image_url",
        "temperature",
        "top_p",
        "stop",
    }
)
LEAST_TOP_P = 0.95  # for a request with thinking


def unsupported(param: str, why: str) -> UnsupportedValue:
    """The error for a value that the dialect does not support."""
    return UnsupportedValue(f"Unsupported value: '{param}': {why}.", param=param)


def functions_of(request: ChatRequest) -> list[FunctionDefinition]:
    """The functions of the request's tools; UnsupportedValue for a custom tool."""
    for position, tool in enumerate(request.as_tools):
        if not isinstance(tool, FunctionTool):
            raise unsupported(f"tools[{position}].type", "this model has no custom tools")
    return [tool.function for tool in request.as_tools if isinstance(tool, FunctionTool)]


def allowed_among(functions: list[FunctionDefinition], request: ChatRequest) -> list[FunctionDefinition]:
    """The functions that the tool choice allows."""
    choice = request.as_tool_choice
    if not isinstance(choice, AllowedChoice):
        return functions
    names = {one.function.name for one in choice.allowed_tools.tools if isinstance(one, FunctionChoice)}
    return [function for function in functions if function.name in names]


def object_schema(parameters: Raw | UnsetType) -> Raw | dict[str, Raw]:
    """A function's schema as Claude's servers require it: of an object, and without nulls for what is absent.

    OpenAI takes a schema without a type. Serialisers of other languages write `"type": null` and `"properties": null`.
    """
    if parameters is UNSET:
        return NO_PARAMETERS
    known = _table.decode(parameters)
    if known.get("type") == OBJECT and NULL not in known.values():
        return parameters
    given = {name: value for name, value in known.items() if value != NULL}
    kind = msgspec.json.decode(given.get("type", OBJECT))
    return {**given, "type": OBJECT} if isinstance(kind, list) and "object" in kind else {"type": OBJECT, **given}


def stops_of(request: ChatRequest) -> list[str]:
    """The stop texts, without those that are empty or only white space."""
    stops = [request.stop] if isinstance(request.stop, str) else request.stop or []
    return [stop for stop in stops if stop.strip()]


def check_prefill(talk: Conversation, *, prefill: bool) -> None:
    """Refuse a conversation that ends with an assistant's message, unless the model can continue it."""
    last = talk.turns[-1]
    if last.role == "assistant" and not prefill:
        param = f"{last.messages[-1].path}.role"
        raise unsupported(param, "this model does not go on with an assistant's message; end with one of the user")


def merged_turns(talk: Conversation, write: Callable[[Placed], Iterable[Block]], *, missing: str) -> list[Block]:
    """The turns as messages of blocks; empty turns are left out, and the turns around them are merged.

    InvalidValue with the text `missing` if no message of the user comes first.
    """
    messages: list[Block] = []
    for turn in talk.turns:
        content = [block for placed in turn.messages for block in write(placed)]
        if not content:
            continue
        if messages and messages[-1]["role"] == turn.role:
            messages[-1]["content"] += content
        else:
            messages.append({"role": turn.role, "content": content})
    if not messages or messages[0]["role"] != "user":
        raise InvalidValue(f"Invalid 'messages': {missing}.", param="messages")
    return messages


def objects_of(raw: Raw | UnsetType, param: str) -> Sequence[dict[str, Any]]:
    """The objects of a JSON array that a caller sent; InvalidType for anything else but null."""
    if raw is UNSET:
        return ()
    try:
        return msgspec.json.decode(raw, type=list[dict[str, Any]] | None) or ()
    except msgspec.ValidationError:
        raise InvalidType(f"Invalid type for '{param}': expected an array of objects.", param=param) from None
