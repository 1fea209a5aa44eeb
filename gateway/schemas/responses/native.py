"""A Responses request as it was sent, for an upstream of the same dialect, and what its answer depends on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, structs

from gateway.errors import UnsupportedParameter
from gateway.schemas.cache_marks import ANTHROPIC_MARK, OPENAI_MARK
from gateway.schemas.native_request import AcceptedFields, NativeRequest
from gateway.schemas.responses.compaction import COMPACTION, message_item, with_instruction
from gateway.schemas.vendor_tools import NO_USES, VendorUses, any_run_by_vendor, tool_uses

_encoder = msgspec.json.Encoder()
_array = msgspec.json.Decoder(list[Raw])
_table = msgspec.json.Decoder(dict[str, Raw])
MOST_CALLS = "max_tool_calls"
CACHE_OPTIONS = "prompt_cache_options"  # an upstream that takes it takes marks on parts, too
OWN_TOOLS = frozenset({"function", "custom"})  # types of tools that the caller runs


class _Typed(Struct):
    type: str | None = None


_peek = msgspec.json.Decoder(_Typed)


class ResponsesNative(NativeRequest, frozen=True, kw_only=True):
    """What was sent, and what no chat request has a place for."""

    asked: str  # the model's name in the request
    hosted: frozenset[str] = frozenset()  # types of all tools that the caller does not run
    bare_tools: bool = False  # a function is without a member that a response repeats
    custom: frozenset[str] = frozenset()  # names of tools with free-form input, as a chat request has them
    spaces: Mapping[str, tuple[str, str]] = {}  # namespace and name of tools by the names that a chat request has
    extra_tools: bool = False  # the input has an item with tools
    demanded: tuple[str, str] | None = None  # a param and a message: what only an upstream of the dialect can do
    chosen: str = ""  # the type of a hosted tool that `tool_choice` demands
    marks: frozenset[str] = frozenset()  # names of the marks for the prompt cache on parts of the input
    compacted: str = ""  # the path of an earlier compaction by an upstream

    @property
    def is_demanding(self) -> bool:
        """Whether not every upstream can serve it."""
        return self.demanded is not None or bool(self.chosen or self.compacted)

    def check_served(self, accepted: AcceptedFields | None) -> None:
        """UnsupportedParameter for what is demanded and an upstream lacks; None: it does not have the dialect."""
        if accepted is None and self.demanded is not None:
            raise UnsupportedParameter(self.demanded[1], param=self.demanded[0])
        if self.compacted and (accepted is None or COMPACTION not in accepted.tools):
            text = f"Unsupported parameter: '{self.compacted}'. This model cannot read a compaction of another service."
            raise UnsupportedParameter(text, param=self.compacted)
        if self.chosen and (accepted is None or self.chosen not in accepted.tools):
            text = f"Unsupported parameter: 'tool_choice'. This model does not have the tool '{self.chosen}'."
            raise UnsupportedParameter(text, param="tool_choice")

    def accepted_by(self, accepted: AcceptedFields) -> NativeRequest:
        if self.compacts and COMPACTION not in accepted.tools:
            return self._for_summary().accepted_by(accepted)
        left = self._marked_for(accepted) if self.marks else super().accepted_by(accepted)
        lacking = self.hosted - accepted.tools
        if not lacking:
            return left
        allowed, fields = OWN_TOOLS | accepted.tools, dict(left.fields)
        if "tools" in fields:
            fields["tools"] = _with_tools(fields["tools"], allowed)
            if bytes(fields["tools"]) == b"[]":
                for name in ("tools", "tool_choice", "parallel_tool_calls"):
                    fields.pop(name, None)
        if self.extra_tools:
            fields["input"] = Raw(_encoder.encode([_with_item_tools(item, allowed) for item in _items(fields)]))
        return structs.replace(left, fields=fields, dropped=(*left.dropped, *dropped_tools(lacking)))

    def _marked_for(self, accepted: AcceptedFields) -> NativeRequest:
        """What an upstream takes, with marks for its cache in OpenAI's words; without them where it has none."""
        left = super().accepted_by(accepted)
        takes_marks = CACHE_OPTIONS in accepted.fields
        if takes_marks and ANTHROPIC_MARK not in self.marks:
            return left
        lacking = self.marks - {OPENAI_MARK} if takes_marks else self.marks
        fields = {**left.fields, "input": without_members(left.fields["input"], lacking)}
        return structs.replace(left, fields=fields, dropped=(*left.dropped, *sorted(lacking)))

    def _for_summary(self) -> ResponsesNative:
        """The same as a request for a summary, for an upstream that has no compaction."""
        fields = dict(self.fields)
        given = bytes(fields["input"])
        items = (
            list(map(bytes, _items(fields))) if given.startswith(b"[") else [message_item(msgspec.json.decode(given))]
        )
        fields["input"] = with_instruction(items[:-1] if self.compacts == "item" else items)
        fields.pop("text", None)
        if "tools" in fields:
            fields["tool_choice"] = Raw(b'"none"')
        return structs.replace(self, fields=fields, compacts="")

    def vendor_uses(self, default: int) -> VendorUses:
        if not self.hosted:
            return NO_USES
        most = msgspec.json.decode(self.fields.get(MOST_CALLS, b"null"))
        lists = [self.fields.get("tools", UNSET), *(_item_tools(item) for item in self._items_with_tools())]
        found = [tool_uses(tools, default, most) for tools in lists]
        return max(found, key=lambda uses: (uses.uses, uses.searches))

    def with_tool_limit(self, accepted: AcceptedFields, uses: int) -> NativeRequest:
        if MOST_CALLS not in accepted.fields or bytes(self.fields.get(MOST_CALLS, b"null")) != b"null":
            return self
        if not any_run_by_vendor(self.hosted & accepted.tools):
            return self
        return structs.replace(self, fields={**self.fields, MOST_CALLS: Raw(b"%d" % uses)})

    def _items_with_tools(self) -> list[Raw]:
        return _items(dict(self.fields)) if self.extra_tools else []


def without_members(items: Raw, names: frozenset[str]) -> Raw:
    """The input without these members of the parts of its items."""
    return Raw(_encoder.encode([_without_members(item, names) for item in _array.decode(items)]))


def _without_members(item: Raw, names: frozenset[str]) -> Raw:
    fields = _table.decode(item)
    for holder in ("content", "output"):
        if bytes(fields.get(holder, b"")).startswith(b"["):
            parts = [_table.decode(part) for part in _array.decode(fields[holder])]
            kept = [{name: raw for name, raw in part.items() if name not in names} for part in parts]
            fields[holder] = Raw(_encoder.encode(kept))
    return Raw(_encoder.encode(fields))


def dropped_tools(types: Iterable[str]) -> list[str]:
    """The names of tools that are left out, for a response header."""
    return [f"tools[{name}]" for name in sorted(types)]


def _items(fields: dict[str, Raw]) -> list[Raw]:
    return _array.decode(fields["input"])


def _with_tools(tools: Raw, allowed: frozenset[str]) -> Raw:
    return Raw(_encoder.encode([tool for tool in _array.decode(tools) if _peek.decode(tool).type in allowed]))


def _with_item_tools(item: Raw, allowed: frozenset[str]) -> Raw:
    if _peek.decode(item).type != "additional_tools":
        return item
    fields = _table.decode(item)
    fields["tools"] = _with_tools(fields["tools"], allowed)
    return Raw(_encoder.encode(fields))


def _item_tools(item: Raw) -> Raw | UnsetType:
    return UNSET if _peek.decode(item).type != "additional_tools" else _table.decode(item).get("tools", UNSET)
