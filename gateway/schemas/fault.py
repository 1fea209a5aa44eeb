"""Where exactly a JSON document breaks its schema, and what to tell the caller.

`first_fault(value, kind, path)` walks a decoded document beside msgspec's own description of the type
(`msgspec.inspect`), so there is no second schema to keep in step. It runs only for requests already refused.
Sharp edge: the document must come from `parse_json`, which keeps 1 and 1.0 apart and never builds a huge integer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from msgspec import inspect

from gateway.errors import BadRequest, InvalidType, InvalidValue, MissingParameter, OutOfRange

_HUGE = 10**30  # stands for any integer of more digits than the widest field has


def parse_json(raw: bytes) -> Any:
    """The document in valid JSON text; RecursionError when it is too deep."""
    return json.loads(raw, parse_int=_integer)


def _integer(text: str) -> int:
    if len(text) <= 30:
        return int(text)
    return -_HUGE if text[0] == "-" else _HUGE


def first_fault(value: Any, kind: inspect.Type, path: str) -> BadRequest | None:
    """The first fault in `value`, in the document's own order; None when it fits `kind`."""
    members = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    fitting = [member for member in members if _fits(value, member)]
    if not fitting:
        return _wrong_type(value, members, path)
    if isinstance(value, dict) and isinstance(fitting[0], inspect.StructType):
        return _struct_fault(value, [member for member in fitting if isinstance(member, inspect.StructType)], path)
    return _fault(value, fitting[0], path)


# Types -------------------------------------------------------------------------------------------------------------


def _fits(value: Any, kind: inspect.Type) -> bool:
    """Whether the JSON type is right."""
    match kind:
        case inspect.NoneType():
            return value is None
        case inspect.BoolType():
            return isinstance(value, bool)
        case inspect.IntType():
            return isinstance(value, int) and not isinstance(value, bool)
        case inspect.FloatType():
            return isinstance(value, int | float) and not isinstance(value, bool)
        case inspect.StrType() | inspect.LiteralType():
            return isinstance(value, str)
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.DictType() | inspect.StructType():
            return isinstance(value, dict)
        case _:
            return True


def _name_of(kind: inspect.Type) -> str:
    match kind:
        case inspect.BoolType():
            return "a boolean"
        case inspect.IntType():
            return "an integer"
        case inspect.FloatType():
            return "a number"
        case inspect.StrType() | inspect.LiteralType():
            return "a string"
        case inspect.ListType():
            return "an array"
        case _:
            return "an object"


def _name_of_value(value: Any) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a decimal number", str: "a string", list: "an array"}
    return "null" if value is None else names.get(type(value), "an object")


def _wrong_type(value: Any, members: Iterable[inspect.Type], path: str) -> BadRequest:
    wanted = dict.fromkeys(_name_of(member) for member in members if not isinstance(member, inspect.NoneType))
    text = f"expected {' or '.join(wanted)}, but got {_name_of_value(value)} instead"
    return InvalidType(f"Invalid type for '{path}': {text}.", param=path)


# Values ------------------------------------------------------------------------------------------------------------


def _fault(value: Any, kind: inspect.Type, path: str) -> BadRequest | None:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            return _number_fault(value, kind, path)
        case inspect.StrType():
            return _string_fault(value, kind, path)
        case inspect.LiteralType():
            return None if value in kind.values else _not_among(value, kind.values, path)
        case inspect.ListType():
            return _list_fault(value, kind, path)
        case inspect.DictType():
            return _dict_fault(value, kind, path)
        case _:
            return None


def _number_fault(value: float, kind: inspect.IntType | inspect.FloatType, path: str) -> BadRequest | None:
    noun = "integer" if isinstance(kind, inspect.IntType) else "decimal"
    if kind.ge is not None and value < kind.ge:
        return OutOfRange(
            f"Invalid '{path}': {noun} below minimum value. Expected a value >= {_number(kind.ge)}, "
            f"but got {_number(value)} instead.",
            code=f"{noun}_below_min_value",
            param=path,
        )
    if kind.le is not None and value > kind.le:
        return OutOfRange(
            f"Invalid '{path}': {noun} above maximum value. Expected a value <= {_number(kind.le)}, "
            f"but got {_number(value)} instead.",
            code=f"{noun}_above_max_value",
            param=path,
        )
    return None


def _number(value: float) -> str:
    """A number in a message; what is beyond all bounds is not spelled out."""
    if abs(value) >= _HUGE:
        return "a larger number" if value > 0 else "a smaller number"
    return str(value) if isinstance(value, int) else f"{value:g}"


def _string_fault(value: str, kind: inspect.StrType, path: str) -> BadRequest | None:
    size = len(value)
    if kind.min_length is not None and size < kind.min_length:
        text = f"empty string. Expected a string with minimum length {kind.min_length}, but got an empty string instead"
        return OutOfRange(f"Invalid '{path}': {text}.", code="empty_string", param=path)
    if kind.max_length is not None and size > kind.max_length:
        text = f"string too long. Expected a string with maximum length {kind.max_length}, but got one of length {size}"
        return OutOfRange(f"Invalid '{path}': {text}.", code="string_above_max_length", param=path)
    if kind.pattern is not None and not re.search(kind.pattern, value):
        pattern = kind.pattern.removesuffix(r"(?!\n)")
        text = f"string does not match pattern. Expected a string that matches the pattern '{pattern}'"
        return InvalidValue(f"Invalid '{path}': {text}.", param=path)
    return None


def _not_among(value: str, allowed: Iterable[Any], path: str) -> BadRequest:
    supported = ", ".join(f"'{one}'" for one in allowed)
    return InvalidValue(f"Invalid value: '{_shown(value)}'. Supported values are: {supported}.", param=path)


def _shown(text: str) -> str:
    """A caller's text, short, and without lone surrogates, which no answer could carry."""
    return text[:64].encode("utf-8", "replace").decode()


# Containers --------------------------------------------------------------------------------------------------------


def _list_fault(value: list[Any], kind: inspect.ListType, path: str) -> BadRequest | None:
    size = len(value)
    if kind.min_length is not None and size < kind.min_length:
        text = f"empty array. Expected an array with minimum length {kind.min_length}, but got an empty array instead"
        return OutOfRange(f"Invalid '{path}': {text}.", code="empty_array", param=path)
    if kind.max_length is not None and size > kind.max_length:
        text = f"array too long. Expected an array with maximum length {kind.max_length}, but got one of length {size}"
        return OutOfRange(f"Invalid '{path}': {text}.", code="array_above_max_length", param=path)
    for index, item in enumerate(value):
        fault = first_fault(item, kind.item_type, f"{path}[{index}]")
        if fault:
            return fault
    return None


def _dict_fault(value: dict[str, Any], kind: inspect.DictType, path: str) -> BadRequest | None:
    if kind.max_length is not None and len(value) > kind.max_length:
        text = f"too many properties. Expected at most {kind.max_length}, but got {len(value)}"
        return InvalidValue(f"Invalid '{path}': {text}.", param=path)
    for key, item in value.items():
        where = f"{path}.{_shown(key)}"
        fault = first_fault(key, kind.key_type, where) or first_fault(item, kind.value_type, where)
        if fault:
            return fault
    return None


def _struct_fault(value: dict[str, Any], members: list[inspect.StructType], path: str) -> BadRequest | None:
    chosen = members[0]
    if chosen.tag_field is not None:
        by_tag = {member.tag: member for member in members}
        tag, where = value.get(chosen.tag_field), f"{path}.{chosen.tag_field}"
        if chosen.tag_field not in value:
            return MissingParameter(f"Missing required parameter: '{where}'.", param=where)
        if not isinstance(tag, str):
            return InvalidType(
                f"Invalid type for '{where}': expected a string, but got {_name_of_value(tag)} instead.", param=where
            )
        if tag not in by_tag:
            return _not_among(tag, by_tag, where)
        chosen = by_tag[tag]
    fields = {field.encode_name: field for field in chosen.fields}
    for key, item in value.items():
        fault = first_fault(item, fields[key].type, f"{path}.{key}") if key in fields else None
        if fault:
            return fault
    for name, field in fields.items():
        if field.required and name not in value:
            return MissingParameter(f"Missing required parameter: '{path}.{name}'.", param=f"{path}.{name}")
    return None
