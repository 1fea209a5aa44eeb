"""Names in a Gemini request: Google takes each in camel case and in snake case.

`rewritten(body, kind)` writes the known names of a body in camel case and removes the names that no upstream may see.
It goes down only where the typed request has fields: arguments, schemas and results are copied byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import Raw, inspect

from gateway.schemas.forbidden import strip_forbidden
from gateway.schemas.request_fields import NULL, OWN

_table = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[Raw])


def snake_names(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The names in snake case that a body of this type may have, at any depth, where the other case differs."""
    found: set[str] = set()
    for fields in _all_structs(inspect.type_info(kind)):
        found.update(name for name, field in fields.items() if name != field.encode_name)
    return frozenset(found)


def rewritten(body: bytes, kind: type[msgspec.Struct]) -> tuple[bytes, list[str]]:
    """The body with known names in camel case, and the removed names; a body of another shape stays as it is."""
    removed: list[str] = []
    try:
        return bytes(_rewritten(Raw(body), inspect.type_info(kind), removed)), removed
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return body, []  # the decoder of the request names the error


def _rewritten(raw: Raw, kind: inspect.Type, removed: list[str]) -> Raw:
    first = bytes(memoryview(raw)[:1])
    if first == b"{":
        struct = next(_members(kind, inspect.StructType), None)
        return raw if struct is None else _object(raw, struct, removed)
    if first == b"[":
        array = next(_members(kind, inspect.ListType), None)
        if array is not None and next(_members(array.item_type, inspect.StructType), None) is not None:
            items = [_rewritten(item, array.item_type, removed) for item in _list.decode(raw)]
            return Raw(msgspec.json.encode(items))
    return raw


def _object(raw: Raw, kind: inspect.StructType, removed: list[str]) -> Raw:
    known, written = _fields(kind.cls), dict[str, Raw]()
    for name, value in _table.decode(raw).items():
        field = known.get(name)
        if field is not None:
            written[field.encode_name] = _rewritten(value, field.type, removed)
            continue
        unknown = {name: value}
        removed += strip_forbidden(unknown, (name,))
        written.update(unknown)
    return Raw(msgspec.json.encode(written))


@cache
def _fields(kind: type[msgspec.Struct]) -> dict[str, inspect.Field]:
    """The fields by both of their names."""
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    fields = [field for field in info.fields if field.name not in OWN]
    return {field.name: field for field in fields} | {field.encode_name: field for field in fields}


def _all_structs(kind: inspect.Type) -> Iterator[dict[str, inspect.Field]]:
    for struct in _members(kind, inspect.StructType):
        fields = _fields(struct.cls)
        yield fields
        for field in fields.values():
            yield from _all_structs(field.type)
    for array in _members(kind, inspect.ListType):
        yield from _all_structs(array.item_type)


def _members(kind: inspect.Type, wanted: type[Any]) -> Iterator[Any]:
    """The type itself, and the members of a union, that are of the `wanted` description."""
    if isinstance(kind, inspect.Metadata):
        yield from _members(kind.type, wanted)
    elif isinstance(kind, inspect.UnionType):
        for member in kind.types:
            yield from _members(member, wanted)
    elif isinstance(kind, wanted):
        yield kind


def without_nulls(fields: dict[str, Raw]) -> dict[str, Raw]:
    """The fields that have a value."""
    return {name: raw for name, raw in fields.items() if raw != NULL}
