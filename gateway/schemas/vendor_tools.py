"""Tools that the vendor of an upstream runs by itself, such as a web search: how often, at most.

After each use the vendor's model reads the whole conversation again, with every page that was found. Its count of the
input is the sum of these rounds, and often ten times the request. So such a call is held and believed up to a context
window for each use (docs/prices.md, "Tools that a vendor runs").
"""

from __future__ import annotations

from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

MOST_USES: Final = 1_000  # a caller's higher limit is no bound of a cost
#: Types of tools that the caller runs, and sets of functions. Any other type is taken for one that the vendor runs.
RUN_BY_CALLER: Final = (
    "function", "custom", "namespace", "bash_*", "text_editor_*", "computer*", "memory_*", "local_shell", "apply_patch",
)  # fmt: skip
#: Types for whose uses the price has `per_web_search`.
SEARCHES: Final = ("web_search*", "x_search*")
#: Types of tools of Messages requests that may have `max_uses`.
WITH_LIMIT: Final = ("web_search_*", "web_fetch_*")


class VendorUses(Struct, frozen=True):
    """The most uses of a request's tools that the vendor runs."""

    uses: int = 0
    searches: int = 0  # those of them that are web searches


NO_USES: Final = VendorUses()


class ToolUses(Struct):
    """A tool in a request: its type, and how often it may be used."""

    type: object = None
    max_uses: object = None


_tools = msgspec.json.Decoder(list[ToolUses])
_tables = msgspec.json.Decoder(list[dict[str, Raw]])


def tool_uses(tools: Raw | UnsetType, default: int, most: object = None) -> VendorUses:
    """The uses of a JSON array of tools. `most`: a limit of all of them together; otherwise each may have its own.

    `default` is the number for tools without a limit.
    """
    found = [] if tools is UNSET else [tool for tool in _tools.decode(tools) if not _is_any(tool.type, RUN_BY_CALLER)]
    searching = [tool for tool in found if _is_any(tool.type, SEARCHES)]
    limit = _limit(most)
    if limit is not None:
        return VendorUses(limit if found else 0, limit if searching else 0)
    return VendorUses(_sum(found, default), _sum(searching, default))


def any_run_by_vendor(types: Iterable[str]) -> bool:
    """Whether one of these types of tools is not run by the caller."""
    return not all(_is_any(name, RUN_BY_CALLER) for name in types)


def with_max_uses(tools: Raw, uses: int) -> Raw:
    """A JSON array of tools in which those that search or fetch without a limit share this number of uses.

    Each gets one use at least. The same object if no tool lacks a limit.
    """
    read = _tools.decode(tools)
    open_ended = [tool.max_uses is None and _is_any(tool.type, WITH_LIMIT) for tool in read]
    if not any(open_ended):
        return tools
    share = Raw(b"%d" % max(1, uses // sum(open_ended)))
    tables = _tables.decode(tools)
    for table, is_open in zip(tables, open_ended, strict=True):
        if is_open:
            table["max_uses"] = share
    return Raw(msgspec.json.encode(tables))


def _sum(tools: Iterable[ToolUses], default: int) -> int:
    """The uses of these tools; those without a limit share the default."""
    limits = [_limit(tool.max_uses) for tool in tools]
    return min(MOST_USES, sum(limit or 0 for limit in limits) + (default if None in limits else 0))


def _limit(value: object) -> int | None:
    return min(value, MOST_USES) if type(value) is int and value > 0 else None


def _is_any(name: object, patterns: Iterable[str]) -> bool:
    """Whether a tool's type fits a pattern; a tool without a type is the caller's."""
    return any(fnmatchcase(str(name or "custom"), pattern) for pattern in patterns)
