"""The members that some servers leave out of their events and items, as llama.cpp does.

Source: the classes of Open Responses 2.4 and of OpenAI's SDK. Such a server writes one item after the other and one
part after the other, so its items and parts are numbered by their order.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from msgspec import UNSET, Raw

from gateway.schemas.answer_surrogates import decode_whole

from .responses_wire import WireEvent, WireItem, WirePart

MOST_ITEMS = 4096  # of one stream that are numbered; the events of later ones stay as they are
ADDED, DONE = "response.output_item.added", "response.output_item.done"
PART_ADDED = "response.content_part.added"
_EMPTY = Raw(b"[]")
_encode = msgspec.json.Encoder().encode
_table = msgspec.json.Decoder(dict[str, Raw])
_array = msgspec.json.Decoder(list[Raw])

_ITEM = {"output_index": Raw(b"0")}
_PART = {**_ITEM, "content_index": Raw(b"0")}
_SUMMARY = {**_ITEM, "summary_index": Raw(b"0")}
_TEXT = {**_PART, "logprobs": _EMPTY}
#: By the name of an event: its members that a server may leave out. The numbers are replaced by the real ones.
MEMBERS: Mapping[str, Mapping[str, Raw]] = {
    ADDED: _ITEM,
    DONE: _ITEM,
    PART_ADDED: _PART,
    "response.content_part.done": _PART,
    "response.output_text.delta": _TEXT,
    "response.output_text.done": _TEXT,
    "response.refusal.delta": _PART,
    "response.refusal.done": _PART,
    "response.reasoning_text.delta": _PART,
    "response.reasoning_text.done": _PART,
    "response.reasoning_summary_part.added": _SUMMARY,
    "response.reasoning_summary_part.done": _SUMMARY,
    "response.reasoning_summary_text.delta": _SUMMARY,
    "response.reasoning_summary_text.done": _SUMMARY,
    "response.function_call_arguments.delta": _ITEM,
    "response.function_call_arguments.done": _ITEM,
    "response.custom_tool_call_input.delta": _ITEM,
    "response.custom_tool_call_input.done": _ITEM,
}
#: By the type of an item: its members that a server may leave out, beside its id and its status.
ITEMS: Mapping[str, Mapping[str, Raw]] = {
    "message": {"role": Raw(b'"assistant"'), "content": _EMPTY},
    "function_call": {"arguments": Raw(b'""')},
    "custom_tool_call": {"input": Raw(b'""')},
    "reasoning": {"summary": _EMPTY},
}
TEXT_PART = {"annotations": _EMPTY, "logprobs": _EMPTY}


class EventMembers:
    """Completes the events of one stream."""

    __slots__ = ("_items", "_parts")

    def __init__(self) -> None:
        self._items: dict[str, int] = {}  # output index by id, or by call id
        self._parts: dict[str, int] = {}  # parts begun, by id of their item

    def complete(self, data: bytes, event: WireEvent) -> bytes:
        """The event with its members; the same object if it has them all."""
        item, part = event.item, event.part
        if event.output_index is None:
            if event.type not in MEMBERS:
                return data
        elif (item is None or not _is_bare_item(item)) and (part is None or not _is_bare_part(part)):
            return data
        fields = _table.decode(data)
        if item is not None and _is_bare_item(item):
            fields["item"] = _item(fields["item"], item, "completed" if event.type == DONE else "in_progress")
        if part is not None and _is_bare_part(part):
            fields["part"] = _part(fields["part"])
        if event.output_index is None and (place := self._place(event)) is not None:
            fields = self._members(event.type, *place) | fields
        return _encode(fields)

    def _place(self, event: WireEvent) -> tuple[int, int] | None:
        """The numbers of the event's item and part; None for an item that did not begin."""
        item = event.item
        key = (item.id or item.call_id if item is not None else event.item_id) or ""
        index = self._items.get(key)
        if index is None and event.type == ADDED and len(self._items) < MOST_ITEMS:
            index = self._items[key] = len(self._items)
        if index is None:
            return None
        if event.type == PART_ADDED:
            self._parts[key] = self._parts.get(key, 0) + 1
        return index, max(0, self._parts.get(key, 0) - 1)

    @staticmethod
    def _members(name: str, index: int, part: int) -> dict[str, Raw]:
        numbers = {"output_index": Raw(b"%d" % index), "content_index": Raw(b"%d" % part)}
        return {member: numbers.get(member, default) for member, default in MEMBERS[name].items()}


def is_bare(output: list[WireItem]) -> bool:
    """Whether an item of a response lacks a member."""
    return any(_is_bare_item(item) for item in output)


def complete_response(response: bytes, output: list[WireItem]) -> bytes:
    """A response whose items have their members; `output`: the items as they were read."""
    fields = decode_whole(_table, response)
    items = zip(_array.decode(fields["output"]), output, strict=True)
    fields["output"] = Raw(_encode([_item(raw, item, "completed") for raw, item in items]))
    return _encode(fields)


def _is_bare_item(item: WireItem) -> bool:
    if item.type not in ITEMS:
        return False
    has_status = item.status is not None or item.type == "reasoning"
    return not (item.id and has_status) or any(_is_bare_part(part) for part in item.content or ())


def _is_bare_part(part: WirePart) -> bool:
    return part.type == "output_text" and part.annotations is UNSET


def _item(raw: Raw, item: WireItem, status: str) -> Raw:
    """An item with its members; `status`: that of one without."""
    if not _is_bare_item(item):
        return raw
    fields = {**ITEMS[item.type], **_table.decode(raw)}
    if item.type != "reasoning" and item.status is None:
        fields["status"] = Raw(_encode(status))
    if not item.id and item.call_id:
        fields["id"] = Raw(_encode(item.call_id))  # which the events of its arguments name as well
    if item.content:
        parts = zip(_array.decode(fields["content"]), item.content, strict=True)
        fields["content"] = Raw(_encode([_part(raw) if _is_bare_part(part) else raw for raw, part in parts]))
    return Raw(_encode(fields))


def _part(raw: Raw) -> Raw:
    return Raw(_encode({**TEXT_PART, **_table.decode(raw)}))
