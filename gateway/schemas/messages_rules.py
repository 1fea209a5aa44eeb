"""The rules of a Messages request that no single field can tell: sources, tools, and results that answer calls.

Each function raises the first broken rule as a BadRequest error with the exact param.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from gateway.errors import MissingParameter, UnsupportedParameter
from gateway.schemas.chat_rules import json_object
from gateway.schemas.messages_blocks import (
    AssistantTurn,
    Base64Source,
    ContentSource,
    DocumentBlock,
    FileSource,
    ImageBlock,
    PlainTextSource,
    ToolResultBlock,
    ToolUseBlock,
    Turn,
    URLSource,
    UserTurn,
)
from gateway.schemas.messages_options import ToolDefinition
from gateway.schemas.schema_errors import invalid

PDF = "application/pdf"


def check_tool_definitions(tools: Sequence[ToolDefinition]) -> None:
    """A tool of the caller has a name and a schema, and no two tools have one name."""
    names: set[str] = set()
    for index, tool in enumerate(tools):
        path = f"tools[{index}]"
        if tool.is_own and tool.name is None:
            raise _missing(f"{path}.name")
        if tool.is_own and tool.input_schema is UNSET:
            raise _missing(f"{path}.input_schema")
        if tool.input_schema is not UNSET and json_object(tool.input_schema, f"{path}.input_schema") is UNSET:
            raise _missing(f"{path}.input_schema")
        if tool.name is not None and tool.name in names:
            raise invalid(f"{path}.name", "another tool has this name")
        names.add(tool.name or "")


def check_turns(turns: Sequence[Turn]) -> None:
    """Sources can be served, inputs are objects, and a result answers an earlier call."""
    called: set[str] = set()
    for index, turn in enumerate(turns):
        if isinstance(turn.content, str):
            continue
        path = f"messages[{index}].content"
        if isinstance(turn, UserTurn):
            _check_user(turn, path, called)
        elif isinstance(turn, AssistantTurn):
            for position, block in enumerate(turn.content):
                if isinstance(block, ToolUseBlock):
                    if json_object(block.input, f"{path}[{position}].input") is UNSET:
                        raise _missing(f"{path}[{position}].input")
                    called.add(block.id)


def _check_user(turn: UserTurn, path: str, called: set[str]) -> None:
    for position, block in enumerate(turn.content):
        where = f"{path}[{position}]"
        if isinstance(block, ToolResultBlock):
            if block.tool_use_id not in called:
                raise invalid(f"{where}.tool_use_id", "no earlier assistant message has a tool_use with this id")
            if isinstance(block.content, list):
                for inner, part in enumerate(block.content):
                    _check_media(part, f"{where}.content[{inner}]")
        else:
            _check_media(block, where)


def _check_media(block: object, path: str) -> None:
    """Check the source of an image or a document."""
    if isinstance(block, ImageBlock):
        source = block.source
        if isinstance(source, Base64Source) and not source.media_type.lower().startswith("image/"):
            raise invalid(f"{path}.source.media_type", "expected the type of an image")
        _check_source(source, f"{path}.source")
    elif isinstance(block, DocumentBlock):
        document = block.source
        if isinstance(document, Base64Source) and document.media_type.lower() != PDF:
            raise invalid(f"{path}.source.media_type", f"expected {PDF}; send text in a source of the type text")
        if isinstance(document, ContentSource):
            for inner, part in enumerate(document.content if isinstance(document.content, list) else ()):
                _check_media(part, f"{path}.source.content[{inner}]")
        elif not isinstance(document, PlainTextSource):
            _check_source(document, f"{path}.source")


def _check_source(source: Base64Source | URLSource | FileSource, path: str) -> None:
    if isinstance(source, FileSource):
        raise UnsupportedParameter(
            f"Unsupported parameter: '{path}.file_id'. There is no file store; send the data.", param=f"{path}.file_id"
        )
    if isinstance(source, URLSource):
        url = source.url
        if not url[:8].lower() == "https://" or len(url) <= 8 or not url.isprintable() or " " in url:
            raise invalid(f"{path}.url", "expected an https address")


def _missing(param: str) -> MissingParameter:
    return MissingParameter(f"Missing required parameter: '{param}'.", param=param)
