"""The nested objects of a Messages request that are no content: tools, tool choice, thinking, form of the answer."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.schemas.chat_messages import NAME_PATTERN

ToolName = Annotated[str, Meta(min_length=1, max_length=64, pattern=NAME_PATTERN)]
CUSTOM = "custom"  # the type of a tool that the caller defines; a tool without a type is one


class ToolDefinition(Struct, gc=False):
    """A tool of the caller, or one that the upstream defines and perhaps runs (`type`)."""

    name: ToolName | None = None
    type: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    description: str | None = None
    input_schema: Raw | UnsetType = UNSET
    strict: bool | None = None

    @property
    def is_own(self) -> bool:
        """Whether the caller defines it."""
        return self.type is None or self.type == CUSTOM


class AutoChoice(Struct, tag="auto", tag_field="type", gc=False):
    """The model decides."""

    disable_parallel_tool_use: bool | None = None


class AnyChoice(Struct, tag="any", tag_field="type", gc=False):
    """Some tool must be called."""

    disable_parallel_tool_use: bool | None = None


class NamedChoice(Struct, tag="tool", tag_field="type", gc=False):
    """This tool must be called."""

    name: str
    disable_parallel_tool_use: bool | None = None


class NoChoice(Struct, tag="none", tag_field="type", gc=False):
    """No tool may be called."""


MessagesToolChoice = AutoChoice | AnyChoice | NamedChoice | NoChoice


class BudgetThinking(Struct, tag="enabled", tag_field="type", gc=False):
    """Thinking of at most so many tokens."""

    budget_tokens: Annotated[int, Meta(ge=1024, le=2**63 - 1)]
    display: Literal["summarized", "omitted"] | None = None


class AdaptiveThinking(Struct, tag="adaptive", tag_field="type", gc=False):
    """As much thinking as the model finds right."""

    display: Literal["summarized", "omitted"] | None = None


class BetweenTools(Struct, tag="between_tools", tag_field="type", gc=False):
    """Thinking between calls of tools only."""

    display: Literal["summarized", "omitted"] | None = None


class NoThinking(Struct, tag="disabled", tag_field="type", gc=False):
    """No thinking."""


Thinking = BudgetThinking | AdaptiveThinking | BetweenTools | NoThinking


class JsonOutput(Struct, tag="json_schema", tag_field="type", gc=False):
    """The answer is JSON that fits the schema, an object."""

    schema: Raw


class OutputConfig(Struct, gc=False):
    """The effort, and the form of the answer."""

    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None
    format: JsonOutput | None = None


class CallerMetadata(Struct, gc=False):
    """Who asks."""

    user_id: str | None = None
