"""The content of a Messages request: turns by role, blocks by type (docs/fields.md, "Messages").

Unknown keys are ignored here, and travel in `NativeRequest.fields`. Sharp edge: `source` of the type `file` is known
only to be refused, because the files of an upstream belong to its operator and not to the caller.
"""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from gateway.schemas.chat_messages import MAX_PARTS, ItemId, Label, NonEmpty

# Sources -----------------------------------------------------------------------------------------------------------


class Base64Source(Struct, tag="base64", tag_field="type", gc=False):
    """The bytes of an image or a PDF."""

    media_type: Annotated[str, Meta(max_length=128)]
    data: NonEmpty


class URLSource(Struct, tag="url", tag_field="type", gc=False):
    """An https address."""

    url: NonEmpty


class FileSource(Struct, tag="file", tag_field="type", gc=False):
    """A file in the upstream's store."""

    file_id: str


class PlainTextSource(Struct, tag="text", tag_field="type", gc=False):
    """A document as text."""

    data: str
    media_type: Literal["text/plain"] = "text/plain"


# Blocks ------------------------------------------------------------------------------------------------------------


class CachedBlock(Struct, gc=False, kw_only=True):
    """A block, up to which the prompt may be worth caching."""

    cache_control: Raw | UnsetType = UNSET


class TextBlock(CachedBlock, tag="text", tag_field="type", gc=False):
    """A piece of text."""

    text: str


class ImageBlock(CachedBlock, tag="image", tag_field="type", gc=False):
    """An image to look at."""

    source: Base64Source | URLSource | FileSource


class ContentSource(Struct, tag="content", tag_field="type", gc=False):
    """A document as blocks."""

    content: str | Annotated[list[TextBlock | ImageBlock], Meta(max_length=MAX_PARTS)]


class DocumentBlock(CachedBlock, tag="document", tag_field="type", gc=False):
    """A document to read."""

    source: Base64Source | PlainTextSource | ContentSource | URLSource | FileSource
    title: str | None = None
    context: str | None = None


class SearchResultBlock(CachedBlock, tag="search_result", tag_field="type", gc=False):
    """A result of the caller's own search."""

    source: str
    title: str
    content: Annotated[list[TextBlock], Meta(max_length=MAX_PARTS)]


class ToolReferenceBlock(CachedBlock, tag="tool_reference", tag_field="type", gc=False):
    """A tool that a search among tools has found."""

    tool_name: Label


class ToolUseBlock(CachedBlock, tag="tool_use", tag_field="type", gc=False):
    """A tool that the model called; `input` is an object."""

    id: ItemId
    name: Label
    input: Raw


ResultBlock = TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock


class ToolResultBlock(CachedBlock, tag="tool_result", tag_field="type", gc=False):
    """What a tool answered."""

    tool_use_id: ItemId
    content: str | Annotated[list[ResultBlock], Meta(max_length=MAX_PARTS)] | None = None
    is_error: bool | None = None


class ThinkingBlock(Struct, tag="thinking", tag_field="type", gc=False):
    """What the model thought; the signature proves it."""

    thinking: str
    signature: str = ""


class RedactedThinkingBlock(Struct, tag="redacted_thinking", tag_field="type", gc=False):
    """Thinking that only the upstream can read."""

    data: str


# Blocks of tools that run at the upstream: forwarded where it takes them, and left out elsewhere.


class UpstreamBlock(Struct, tag_field="type", tag=True, gc=False):
    """A block that only an upstream of this dialect understands."""


class ServerToolUse(UpstreamBlock, tag="server_tool_use"):
    """A call of a tool that ran at the upstream."""


class WebSearchResult(UpstreamBlock, tag="web_search_tool_result"):
    """What a web search found."""


class WebFetchResult(UpstreamBlock, tag="web_fetch_tool_result"):
    """What was read from the web."""


class CodeExecutionResult(UpstreamBlock, tag="code_execution_tool_result"):
    """What a program printed."""


class BashExecutionResult(UpstreamBlock, tag="bash_code_execution_tool_result"):
    """What a shell command printed."""


class TextEditorResult(UpstreamBlock, tag="text_editor_code_execution_tool_result"):
    """What an edit in the upstream's container did."""


class ToolSearchResult(UpstreamBlock, tag="tool_search_tool_result"):
    """Which tools a search found."""


class McpToolUse(UpstreamBlock, tag="mcp_tool_use"):
    """A call of a tool of an MCP server."""


class McpToolResult(UpstreamBlock, tag="mcp_tool_result"):
    """What a tool of an MCP server answered."""


class ContainerUpload(UpstreamBlock, tag="container_upload"):
    """A file for the upstream's container."""


class Compaction(UpstreamBlock, tag="compaction"):
    """A summary in place of earlier turns."""


UserBlock = (
    TextBlock | ImageBlock | DocumentBlock | SearchResultBlock | ToolReferenceBlock | ToolResultBlock | ContainerUpload
)
AssistantBlock = (
    TextBlock
    | ThinkingBlock
    | RedactedThinkingBlock
    | ToolUseBlock
    | ServerToolUse
    | WebSearchResult
    | WebFetchResult
    | CodeExecutionResult
    | BashExecutionResult
    | TextEditorResult
    | ToolSearchResult
    | McpToolUse
    | McpToolResult
    | Compaction
)

# Turns -------------------------------------------------------------------------------------------------------------

SystemContent = str | Annotated[list[TextBlock], Meta(max_length=MAX_PARTS)]


class UserTurn(Struct, tag="user", tag_field="role", gc=False):
    """Input from the caller, and results of tools."""

    content: str | Annotated[list[UserBlock], Meta(min_length=1, max_length=MAX_PARTS)]


class AssistantTurn(Struct, tag="assistant", tag_field="role", gc=False):
    """An earlier answer, or the beginning of the next one."""

    content: str | Annotated[list[AssistantBlock], Meta(max_length=MAX_PARTS)]


class SystemTurn(Struct, tag="system", tag_field="role", gc=False):
    """Later instructions."""

    content: SystemContent


Turn = UserTurn | AssistantTurn | SystemTurn
