"""A Messages request for a cloud that serves Claude: Vertex AI, Bedrock. They take fewer beta flags than Anthropic.

Sharp edge: a cloud refuses a request with a flag that it does not know, and a field or a tool whose flag is missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase

import msgspec
from msgspec import Struct, structs

from gateway import AcceptedFields, NativeRequest

from .accepted import CACHE_SCOPE, SYSTEM_TURNS
from .cache_scope import without_scope
from .system_turns import without_system_turns

#: Flags that a cloud has under another name.
FLAGS: Mapping[str, str] = {"advanced-tool-use-2025-11-20": "tool-search-tool-2025-10-19"}
#: The flag that a cloud wants for a tool, by a pattern of its type. Anthropic's API takes these tools without a flag.
TOOL_FLAGS: Mapping[str, str] = {
    "memory_*": "context-management-2025-06-27",
    "tool_search_tool_*": "tool-search-tool-2025-10-19",
    "web_search_*": "web-search-2025-03-05",
}


class _Typed(Struct):
    type: str | None = None


_tools = msgspec.json.Decoder(list[_Typed])


def fitted(native: NativeRequest, accepted: AcceptedFields) -> NativeRequest:
    """The request with the flags that a cloud knows, and without what needs a flag that is not accepted."""
    flags = [FLAGS.get(flag, flag) for flag in native.betas]
    flags += _flags_of_tools(native)
    fields = native.fields
    if not accepted.takes_flag(SYSTEM_TURNS):
        fields = {**fields, "messages": without_system_turns(fields["messages"])}
    if not accepted.takes_flag(CACHE_SCOPE):
        fields = without_scope(fields)
    return structs.replace(native, fields=fields, betas=tuple(dict.fromkeys(flags)))


def _flags_of_tools(native: NativeRequest) -> list[str]:
    if "tools" not in native.fields:
        return []
    types = {tool.type for tool in _tools.decode(native.fields["tools"]) if tool.type is not None}
    return [flag for pattern, flag in TOOL_FLAGS.items() if any(fnmatchcase(name, pattern) for name in types)]
