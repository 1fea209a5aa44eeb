"""The nested objects of a Responses request that are not items: tools, tool choices, the form of the text, reasoning.

Every optional key also takes null, which equals absence.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
import msgspec.inspect
from msgspec import UNSET, Meta, MsgspecError, Raw, Struct, UnsetType

from gateway.schemas.chat_messages import Name, NonEmpty, TextFormat
from gateway.schemas.chat_options import JSONObjectFormat
from gateway.schemas.chat_rules import json_object
from gateway.schemas.schema_errors import first_error, invalid, parse_json

Effort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
Summary = Literal["auto", "concise", "detailed"]


class ResponsesStreamOptions(Struct, gc=False):
    """What a stream carries beside the answer."""

    include_obfuscation: bool | None = None


class TextSchemaFormat(Struct, tag="json_schema", tag_field="type", gc=False):
    """The answer is JSON that fits the schema."""

    name: Name
    schema: Raw | UnsetType = UNSET
    description: str | None = None
    strict: bool | None = None


class TextOptions(Struct, gc=False):
    """The form of the answer's text."""

    format: TextFormat | JSONObjectFormat | TextSchemaFormat | None = None
    verbosity: Literal["low", "medium", "high"] | None = None


class ReasoningOptions(Struct, gc=False):
    """How much the model reasons, and what it shows of that."""

    effort: Effort | None = None
    summary: Summary | None = None
    generate_summary: Summary | None = None
    context: Literal["auto", "current_turn", "all_turns"] | None = None
    mode: Literal["standard", "pro"] | None = None


class CacheOptions(Struct, gc=False):
    """How the upstream caches the prompt."""

    mode: Literal["implicit", "explicit"] | None = None
    ttl: Literal["30m"] | None = None
    prewarm: bool | None = None


# Tools -------------------------------------------------------------------------------------------------------------


class FunctionTool(Struct, gc=False):
    """A function that the model may call; `parameters` is its JSON Schema, an object."""

    name: Name
    type: Literal["function"]
    parameters: Raw | UnsetType = UNSET
    description: str | None = None
    strict: bool | None = None


class GrammarSyntax(Struct, tag="grammar", tag_field="type", gc=False):
    """The input must follow a grammar."""

    definition: str
    syntax: Literal["lark", "regex"]


class CustomTool(Struct, gc=False):
    """A tool with free-form input."""

    name: Name
    description: str | None = None
    format: TextFormat | GrammarSyntax | None = None


class NamespaceTool(Struct):
    """Functions and custom tools under one name."""

    name: Annotated[str, Meta(min_length=1, max_length=512)]
    tools: Annotated[list[Raw], Meta(max_length=128)] = []
    description: str | None = None
    members: Any = None  # the `tools`, set by `read_tools`


class HostedTool(Struct, gc=False):
    """A tool that the upstream runs by itself."""

    type: str


Tool = FunctionTool | CustomTool | NamespaceTool | HostedTool


class ChosenTool(Struct, gc=False):
    """A tool that is named in a choice; `name` is that of a function or of a custom tool."""

    type: NonEmpty
    name: NonEmpty | None = None
    namespace: NonEmpty | None = None


class ChoiceObject(Struct, gc=False):
    """A tool that the model must call, or a set of tools among which it may choose."""

    type: NonEmpty
    name: NonEmpty | None = None
    namespace: NonEmpty | None = None
    mode: Literal["auto", "required"] | None = None
    tools: Annotated[list[ChosenTool], Meta(max_length=128)] | None = None


class _Typed(Struct):
    type: str


_peek = msgspec.json.Decoder(_Typed)
_KINDS: dict[str, type[Struct]] = {"function": FunctionTool, "custom": CustomTool, "namespace": NamespaceTool}
_function = msgspec.json.Decoder(FunctionTool)
_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(kind) for name, kind in _KINDS.items()}


def read_tools(tools: Sequence[Raw], path: str = "tools") -> list[Tool]:
    """The tools, hosted ones by their type alone; raises BadRequest with the exact param."""
    return [_read(raw, f"{path}[{index}]") for index, raw in enumerate(tools)]


def _read(raw: Raw, path: str) -> Tool:
    try:
        tool = _function.decode(raw)  # what nearly all tools are, read once
    except MsgspecError:
        return _read_other(raw, path)
    tool.parameters = json_object(tool.parameters, f"{path}.parameters")
    return tool


def _read_other(raw: Raw, path: str) -> Tool:
    """A tool of another type; the error of one that cannot be read."""
    kind: type[Struct] = _Typed
    try:
        name = _peek.decode(raw).type
        if name not in _KINDS:
            return HostedTool(name)
        kind = _KINDS[name]
        tool: FunctionTool | CustomTool | NamespaceTool = _decoders[name].decode(raw)
    except MsgspecError:
        error = first_error(parse_json(bytes(raw)), msgspec.inspect.type_info(kind), path)
        raise error or invalid(path, "it cannot be read") from None
    if isinstance(tool, NamespaceTool):
        tool.members = _members(tool, path)
    return tool


def _members(space: NamespaceTool, path: str) -> list[Tool]:
    found = read_tools(space.tools, f"{path}.tools")
    for number, tool in enumerate(found):
        if isinstance(tool, NamespaceTool):
            raise invalid(f"{path}.tools[{number}]", "a namespace has no namespaces in it")
    return found
