"""The rules of a chat request that no single field can tell: fields that need or contradict others, and the history.

Each function takes the fields that its rule is about, and raises the first broken rule as a BadRequest error with the
exact param. `decode_chat_request` calls them, each only when its field is there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from msgspec import UNSET, Raw, UnsetType

from gateway.errors import InvalidType, InvalidValue, MissingParameter, UnsupportedParameter
from gateway.schemas.chat_messages import (
    AllowedChoice,
    AssistantMessage,
    CustomTool,
    FilePart,
    FunctionChoice,
    FunctionDefinition,
    FunctionTool,
    ImagePart,
    Message,
    Named,
    Tool,
    ToolChoice,
    ToolMessage,
    UserMessage,
    UserPart,
)
from gateway.schemas.schema_errors import invalid
from gateway.schemas.validation import json_kind


def check_max_tokens(max_tokens: int, max_completion_tokens: int | None) -> None:
    """Both spellings, if both are there, give the same value."""
    if max_completion_tokens is not None and max_completion_tokens != max_tokens:
        raise invalid("max_tokens", "it differs from 'max_completion_tokens'; set one, or both to the same value")


# Tools -------------------------------------------------------------------------------------------------------------


def check_tools(tools: Sequence[Tool] | None, choice: ToolChoice | None) -> None:
    """Parameters are objects, and the choice names tools that are there."""
    names: set[str] = set()
    for index, tool in enumerate(tools or ()):
        if isinstance(tool, FunctionTool):
            _check_parameters(tool.function, f"tools[{index}].function")
            names.add(tool.function.name)
        elif isinstance(tool, CustomTool):
            names.add(tool.custom.name)
    if choice is None or choice in ("none", "auto"):
        return
    if not names:
        raise invalid("tool_choice", "it is only allowed when 'tools' are given")
    if isinstance(choice, str):
        return
    chosen = choice.allowed_tools.tools if isinstance(choice, AllowedChoice) else [choice]
    for one in chosen:
        if (one.function if isinstance(one, FunctionChoice) else one.custom).name not in names:
            raise invalid("tool_choice", "it names a tool that is not in 'tools'")


def check_functions(
    functions: Sequence[FunctionDefinition] | None,
    choice: Literal["none", "auto"] | Named | None,
    *,
    beside_tools: bool,
) -> None:
    """The same for legacy functions, which stand in place of tools."""
    if beside_tools and functions is not None:
        raise InvalidValue("Invalid 'functions': use either 'tools' or 'functions', not both.", param="functions")
    for index, function in enumerate(functions or ()):
        _check_parameters(function, f"functions[{index}]")
    if choice is None or isinstance(choice, str):
        return
    if choice.name not in {function.name for function in functions or ()}:
        raise InvalidValue("Invalid 'function_call': it names no function of 'functions'.", param="function_call")


def _check_parameters(function: FunctionDefinition, path: str) -> None:
    function.parameters = json_object(function.parameters, f"{path}.parameters")


def json_object(raw: Raw | UnsetType, param: str) -> Raw | UnsetType:
    """A JSON object left undecoded; null becomes absence."""
    if raw is UNSET:
        return raw
    kind = json_kind(memoryview(raw)[0])
    if kind == "null":
        return UNSET
    if kind != "an object":
        raise InvalidType(f"Invalid type for '{param}': expected an object, but got {kind} instead.", param=param)
    return raw


# History -----------------------------------------------------------------------------------------------------------


def check_history(messages: Sequence[Message]) -> bool:
    """Parts that can be served, answers that say something, tool results that answer an earlier call.

    Returns whether an answer has an empty list of tool calls.
    """
    called: set[str] = set()
    empty = False
    for index, message in enumerate(messages):
        if type(message) is UserMessage:
            if type(message.content) is list:
                _check_parts(message.content, index)
        elif type(message) is AssistantMessage:
            if message.tool_calls:
                called.update(call.id for call in message.tool_calls)
            else:
                empty = empty or message.tool_calls is not None
                _check_assistant(message, index)
        elif type(message) is ToolMessage and message.tool_call_id not in called:
            raise invalid(f"messages[{index}].tool_call_id", "no earlier assistant message called a tool with this id")
    return empty


def _check_assistant(message: AssistantMessage, index: int) -> None:
    # A refusal or a spoken answer comes with null content, and callers send it back as it came.
    if not (message.content or message.content == "" or message.function_call or message.refusal or message.audio):
        raise MissingParameter(
            f"Missing required parameter: 'messages[{index}].content', as there are no tool calls.",
            param=f"messages[{index}].content",
        )


def _check_parts(parts: list[UserPart], index: int) -> None:
    for position, part in enumerate(parts):
        if isinstance(part, ImagePart):
            if not is_image_url(part.image_url.url):
                param = f"messages[{index}].content[{position}].image_url.url"
                raise invalid(param, "expected an https URL or a base64 data URL of an image")
        elif isinstance(part, FilePart):
            _check_file(part, f"messages[{index}].content[{position}].file")


def is_image_url(url: str) -> bool:
    head = url[:128].lower()
    if head.startswith("https://"):
        return len(url) > 8 and url.isprintable() and " " not in url
    return head.startswith("data:image/") and ";base64," in head


def _check_file(part: FilePart, path: str) -> None:
    if part.file.file_id is not None:
        raise UnsupportedParameter(
            f"Unsupported parameter: '{path}.file_id'. There is no file store; send 'file_data'.",
            param=f"{path}.file_id",
        )
    if part.file.file_data is None:
        raise MissingParameter(f"Missing required parameter: '{path}.file_data'.", param=f"{path}.file_data")
    if not part.file.file_data[:8].lower().startswith(("data:", "https://")):
        message = f"Invalid '{path}.file_data': expected a data URL, or an https address."
        raise InvalidValue(message, param=f"{path}.file_data")
