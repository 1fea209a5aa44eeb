"""Tools and tool choices of a Responses request, in the terms of chat requests.

A custom tool becomes a function with one string `input`; the answer's encoder turns its calls back. A hosted tool and
a namespace have no place in a chat request: they are left out, unless the choice demands one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from msgspec import UNSET, Struct

from gateway.schemas.responses.options import ChoiceObject, ChosenTool, CustomTool, FunctionTool, GrammarSyntax, Tool
from gateway.schemas.schema_errors import invalid

INPUT_SCHEMA = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}
CHOICES = ("function", "custom")


class ToolSet(Struct, frozen=True):
    """The tools of a request, as chat requests have them."""

    tools: list[dict[str, Any]]
    choice: Any = None  # of a chat request; None: not sent
    hosted: frozenset[str] = frozenset()  # types of tools that are left out
    custom: frozenset[str] = frozenset()  # names of tools with free-form input
    demanded: tuple[str, str] | None = None  # what an upstream must have that has no place here: a param, a message
    chosen: str = ""  # the type of the hosted tool that the choice demands

    @classmethod
    def of(cls, tools: Sequence[Tool], choice: str | ChoiceObject | None) -> Self:
        """The tools, and the choice among them; InvalidValue for a choice of a tool that is not there."""
        kept = [tool for tool in tools if isinstance(tool, FunctionTool | CustomTool)]
        hosted = frozenset(tool.type for tool in tools if not isinstance(tool, FunctionTool | CustomTool))
        names = {(_kind(tool), tool.name) for tool in kept}
        made = cls(
            tools=list(map(_chat_tool, kept)),
            hosted=hosted,
            custom=frozenset(tool.name for tool in kept if isinstance(tool, CustomTool)),
        )
        return made._choosing(choice, names)

    def _choosing(self, choice: str | ChoiceObject | None, names: set[tuple[str, str]]) -> Self:
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
        return self._with(_named(choice.type, choice.name, names, "tool_choice"))

    def _among(self, choice: ChoiceObject, names: set[tuple[str, str]]) -> Self:
        """The choice among a set of tools."""
        listed: list[ChosenTool] = choice.tools or []
        chosen = [_named(tool.type, tool.name, names, "tool_choice.tools") for tool in listed if tool.type in CHOICES]
        if not chosen:
            return self._demanding() if choice.mode == "required" else self._with("none" if self.tools else None)
        allowed = {"mode": choice.mode or "auto", "tools": chosen}
        return self._with({"type": "allowed_tools", "allowed_tools": allowed})

    def _demanding(self) -> Self:
        text = "Unsupported parameter: 'tool_choice'. This model has none of the tools that it demands."
        return self._with(None, demanded=("tool_choice", text))

    def _with(self, choice: Any, *, demanded: tuple[str, str] | None = None, chosen: str = "") -> Self:
        return type(self)(self.tools, choice, self.hosted, self.custom, demanded, chosen)


def _kind(tool: FunctionTool | CustomTool) -> str:
    return "function" if isinstance(tool, FunctionTool) else "custom"


def _named(kind: str, name: str | None, names: set[tuple[str, str]], param: str) -> dict[str, Any]:
    if name is None or (kind, name) not in names:
        raise invalid(param, "it names a tool that is not in 'tools'")
    return {"type": "function", "function": {"name": name}}


def _chat_tool(tool: FunctionTool | CustomTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
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
