"""The `scope` of cache breakpoints, for an upstream that does not take its flag.

Such an upstream refuses `{"type": "ephemeral", "scope": "global"}`. Without the scope the block is cached all the same,
for the operator's account alone. The caller reads of it by the name of the flag, which is left out, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec
from msgspec import Raw

Block = dict[str, Raw]

_SCOPED = re.compile(rb'"cache_control"\s*:\s*\{[^{}]*"scope"')
_items = msgspec.json.Decoder(list[Block])
_object = msgspec.json.Decoder(Block)


def without_scope(fields: Mapping[str, Raw]) -> dict[str, Raw]:
    """The fields of a request with no scope in the breakpoints of its system prompt, tools and turns."""
    kept = dict(fields)
    for name in ("system", "tools"):
        if name in fields:
            kept[name] = _unscoped(fields[name])
    if _SCOPED.search(bytes(fields["messages"])):
        turns = [{**turn, "content": _unscoped(turn["content"])} for turn in _items.decode(fields["messages"])]
        kept["messages"] = Raw(msgspec.json.encode(turns))
    return kept


def _unscoped(blocks: Raw) -> Raw:
    """The blocks or tools without a scope; a text as it was."""
    if not _SCOPED.search(bytes(blocks)) or not bytes(blocks).lstrip().startswith(b"["):
        return blocks
    return Raw(msgspec.json.encode([_without(block) for block in _items.decode(blocks)]))


def _without(block: Block) -> Block:
    control = bytes(block.get("cache_control", b""))
    if not control.startswith(b"{"):
        return block
    kept = {name: value for name, value in _object.decode(control).items() if name != "scope"}
    return {**block, "cache_control": Raw(msgspec.json.encode(kept))}
