"""Tools and tool choices of a Responses request, in the terms of chat requests.

A custom tool becomes a function with one string `input`, a tool in a namespace one with a longer name; the answer's
encoder turns their calls back. A hosted tool has no place in a chat request: it is left out, unless the choice demands
one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from msgspec import UNSET, Raw, Struct, structs

from gateway.schemas.responses.options import (
    ChoiceObject,
    ChosenTool,
    CustomTool,
    FunctionTool,
    GrammarSyntax,
    HostedTool,
    NamespaceTool,
    Tool,
)
from gateway.schemas.responses.tool_names import flat_name
from gateway.schemas.schema_errors import invalid

INPUT_SCHEMA = Raw(
    b'{"type":"object","properties":{"input":{"type":"string","description":"The input of the tool, as plain text."}},'
    b'"required":["input"],"additionalProperties":false}'
)
CHOICES = ("function", "custom")


#: Namespace and name of a tool.
Place = tuple[str, str]
#: Type, namespace ("" for none) and name of the tools that can be chosen, with their names in a chat request.
Names = Mapping[tuple[str, str, str], str]


class _Kept(Struct, frozen=True):
    """A tool that a chat request has."""

    flat: str  # its name there
    space: str  # "" for none
    tool: FunctionTool | CustomTool


class ToolSet(Struct, frozen=True):
    """The tools of a request, as chat requests have them."""

    tools: list[dict[str, Any]]
    choice: Any = None  # of a chat request; None: not sent
    hosted: frozenset[str] = frozenset()  # types of tools that are neither functions nor custom tools
    left_out: frozenset[str] = frozenset()  # those of them that have no place in a chat request
    custom: frozenset[str] = frozenset()  # names of tools with free-form input, as a chat request has them
    spaces: Mapping[str, Place] = {}  # the tools in namespaces by these names
    demanded: tuple[str, str] | None = None  # what an upstream must have that has no place here: a param, a message
    chosen: str = ""  # the type of the hosted tool that the choice demands
    bare: bool = False  # a function is without a member that a response repeats

    @classmethod
    def of(cls, tools: Sequence[Tool], choice: str | ChoiceObject | None) -> Self:
        """The tools, and the choice among them; InvalidValue for a choice of a tool that is not there."""
        kept = list(_named_tools(tools))
        made = cls(
            tools=[_chat_tool(one) for one in kept],
            hosted=frozenset(_type(tool) for tool in tools if not isinstance(tool, FunctionTool | CustomTool)),
            left_out=frozenset(_left_out(tools)),
            custom=frozenset(one.flat for one in kept if isinstance(one.tool, CustomTool)),
            spaces={one.flat: (one.space, one.tool.name) for one in kept if one.space},
            bare=any(isinstance(tool, FunctionTool) and _is_bare(tool) for tool in tools),
        )
        return made._choosing(choice, {(_type(one.tool), one.space, one.tool.name): one.flat for one in kept})

    def flat(self, namespace: str | None, name: str) -> str:
        """The name of a tool in a chat request."""
        if not namespace:
            return name
        place = (namespace, name)
        return next((flat for flat, known in self.spaces.items() if known == place), flat_name(namespace, name))

    def _choosing(self, choice: str | ChoiceObject | None, names: Names) -> Self:
        if choice is None or choice in ("auto", "none"):
            return self._with(choice if self.tools else None)
        if isinstance(choice, str):
            if not self.tools and not self.hosted:
                raise invalid("tool_choice", "it is only allowed when 'tools' are given")
            return self._with("required") if self.tools else self._demanding()
        if choice.type == "allowed_tools":
            return self._among(choice, names)
        if choice.type not in CHOICES:
            return self._with(None, chosen=choice.type)
        return self._with(_named(choice, names, "tool_choice"))

    def _among(self, choice: ChoiceObject, names: Names) -> Self:
        """The choice among a set of tools."""
        listed: list[ChosenTool] = choice.tools or []
        chosen = [_named(tool, names, "tool_choice.tools") for tool in listed if tool.type in CHOICES]
        if not chosen:
            return self._demanding() if choice.mode == "required" else self._with("none" if self.tools else None)
        allowed = {"mode": choice.mode or "auto", "tools": chosen}
        return self._with({"type": "allowed_tools", "allowed_tools": allowed})

    def _demanding(self) -> Self:
        text = "Unsupported parameter: 'tool_choice'. This model has none of the tools that it demands."
        return self._with(None, demanded=("tool_choice", text))

    def _with(self, choice: Any, *, demanded: tuple[str, str] | None = None, chosen: str = "") -> Self:
        return structs.replace(self, choice=choice, demanded=demanded, chosen=chosen)


def _is_bare(tool: FunctionTool) -> bool:
    return tool.description is None or tool.strict is None or tool.parameters is UNSET


def _type(tool: Tool) -> str:
    if isinstance(tool, HostedTool):
        return tool.type
    return {FunctionTool: "function", CustomTool: "custom", NamespaceTool: "namespace"}[type(tool)]


def _named_tools(tools: Sequence[Tool]) -> Iterator[_Kept]:
    """Functions and custom tools, those in namespaces where the namespace stands."""
    used = {tool.name for tool in tools if isinstance(tool, FunctionTool | CustomTool)}
    for tool in tools:
        if isinstance(tool, FunctionTool | CustomTool):
            yield _Kept(tool.name, "", tool)
        elif isinstance(tool, NamespaceTool):
            for one in tool.members:
                if isinstance(one, FunctionTool | CustomTool):
                    flat = flat_name(tool.name, one.name)
                    flat = flat_name(tool.name, one.name, hashed=True) if flat in used else flat
                    used.add(flat)
                    yield _Kept(flat, tool.name, one)


def _left_out(tools: Sequence[Tool]) -> Iterator[str]:
    """The types of tools that have no place in a chat request."""
    for tool in tools:
        if isinstance(tool, HostedTool):
            yield tool.type
        elif isinstance(tool, NamespaceTool):
            yield from (one.type for one in tool.members if isinstance(one, HostedTool))
            if not tool.members:
                yield "namespace"


def _named(choice: ChosenTool | ChoiceObject, names: Names, param: str) -> dict[str, Any]:
    flat = names.get((choice.type, choice.namespace or "", choice.name or ""))
    if flat is None:
        raise invalid(param, "it names a tool that is not in 'tools'")
    return {"type": "function", "function": {"name": flat}}


def _chat_tool(kept: _Kept) -> dict[str, Any]:
    tool = kept.tool
    function: dict[str, Any] = {"name": kept.flat}
    if isinstance(tool, CustomTool):
        function |= {"description": _described(tool), "parameters": INPUT_SCHEMA}
    else:
        if tool.description is not None:
            function["description"] = tool.description
        if tool.parameters is not UNSET:
            function["parameters"] = tool.parameters
        if tool.strict is not None:
            function["strict"] = tool.strict
    return {"type": "function", "function": function}


def _described(tool: CustomTool) -> str:
    """The description of a custom tool with its grammar, which a function has no place for."""
    text = tool.description or ""
    if isinstance(tool.format, GrammarSyntax):
        text += f"\n\nThe input must match this {tool.format.syntax} grammar:\n{tool.format.definition}"
    return text.strip()
