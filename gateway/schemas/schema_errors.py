"""Where exactly a JSON document breaks its schema, and what to tell the caller.

`first_error(value, kind, path)` walks a decoded document beside msgspec's own description of the type
(`msgspec.inspect`), so there is no second schema to keep in step. It runs only for requests already refused.
Sharp edge: the document must come from `parse_json`, which keeps 1 and 1.0 apart and never builds a huge integer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

from msgspec import inspect

from gateway.errors import BadRequest, InvalidType, InvalidValue, MissingParameter, OutOfRange

_KINDS = {str: "a string", int: "an integer", list: "an array", object: "an object"}
_HUGE = 10**30  # stands for any integer of more digits than the widest field has


def parse_json(raw: bytes) -> Any:
    """The document in valid JSON text; RecursionError when it is too deep."""
    return json.loads(raw, parse_int=_integer)


def _integer(text: str) -> int:
    if len(text) <= 30:
        return int(text)
    return -_HUGE if text[0] == "-" else _HUGE


def invalid(param: str, cause: str) -> InvalidValue:
    """The error of a field that breaks a rule."""
    return InvalidValue(f"Invalid '{param}': {cause}.", param=param)


def check_one_kind(items: str | Sequence[Any], param: str) -> None:
    """Raise InvalidType for the first item that is of another kind than the first one; a text alone is none."""
    if isinstance(items, str):
        return
    first = type(items[0])
    for index, item in enumerate(items):
        if type(item) is not first and (kind := _kind_of(item)) is not _kind_of(items[0]):
            text = f"expected {_KINDS[_kind_of(items[0])]}, as the first item is, but got {_KINDS[kind]} instead"
            raise InvalidType(f"Invalid type for '{param}[{index}]': {text}.", param=f"{param}[{index}]")


def _kind_of(item: object) -> type:
    kind = type(item)
    return kind if kind in _KINDS else object


def first_error(value: Any, kind: inspect.Type, path: str) -> BadRequest | None:
    """The first error in `value`, in the document's own order; None when it fits `kind`."""
    if isinstance(kind, inspect.Metadata):  # a description or an example around the type
        return first_error(value, kind.type, path)
    members = kind.types if isinstance(kind, inspect.UnionType) else (kind,)
    fitting = [member for member in members if _fits(value, member)]
    if not fitting:
        return _wrong_type(value, members, path)
    if isinstance(value, dict) and isinstance(fitting[0], inspect.StructType):
        return _struct_error(value, [member for member in fitting if isinstance(member, inspect.StructType)], path)
    return _value_error(value, fitting[0], path)


# Types -------------------------------------------------------------------------------------------------------------

# msgspec's description → the Python types of such a value as it comes out of `parse_json`, and what callers call it.
_JSON_TYPES: Mapping[type[inspect.Type], tuple[tuple[type, ...], str]] = {
    inspect.NoneType: ((NoneType,), "null"),
    inspect.BoolType: ((bool,), "a boolean"),
    inspect.IntType: ((int,), "an integer"),
    inspect.FloatType: ((int, float), "a number"),
    inspect.StrType: ((str,), "a string"),
    inspect.LiteralType: ((str,), "a string"),
    inspect.ListType: ((list,), "an array"),
    inspect.DictType: ((dict,), "an object"),
    inspect.StructType: ((dict,), "an object"),
}


def _fits(value: Any, kind: inspect.Type) -> bool:
    """Whether the JSON type is right; anything is for a type that the table does not name."""
    return type(kind) not in _JSON_TYPES or type(value) in _JSON_TYPES[type(kind)][0]


def _name_of_value(value: Any) -> str:
    names = {bool: "a boolean", int: "an integer", float: "a decimal number", str: "a string", list: "an array"}
    return "null" if value is None else names.get(type(value), "an object")


def _wrong_type(value: Any, members: Iterable[inspect.Type], path: str) -> BadRequest:
    wanted = dict.fromkeys(
        _JSON_TYPES[type(member)][1] for member in members if not isinstance(member, inspect.NoneType)
    )
    text = f"expected {' or '.join(wanted)}, but got {_name_of_value(value)} instead"
    return InvalidType(f"Invalid type for '{path}': {text}.", param=path)


# Values ------------------------------------------------------------------------------------------------------------


def _value_error(value: Any, kind: inspect.Type, path: str) -> BadRequest | None:
    match kind:
        case inspect.IntType() | inspect.FloatType():
            return _number_error(value, kind, path)
        case inspect.StrType():
            return _string_error(value, kind, path)
        case inspect.LiteralType():
            return None if value in kind.values else _not_among(value, kind.values, path)
        case inspect.ListType():
            return _list_error(value, kind, path)
        case inspect.DictType():
            return _dict_error(value, kind, path)
        case _:
            return None


def _number_error(value: float, kind: inspect.IntType | inspect.FloatType, path: str) -> BadRequest | None:
    noun = "integer" if isinstance(kind, inspect.IntType) else "decimal"
    if kind.ge is not None and value < kind.ge:
        side, edge, sign, bound = "below", "minimum", ">=", kind.ge
    elif kind.le is not None and value > kind.le:
        side, edge, sign, bound = "above", "maximum", "<=", kind.le
    else:
        return None
    text = f"{noun} {side} {edge} value. Expected a value {sign} {_number(bound)}, but got {_number(value)} instead"
    return OutOfRange(f"Invalid '{path}': {text}.", code=f"{noun}_{side}_{edge[:3]}_value", param=path)


def _number(value: float) -> str:
    """A number in a message; what is beyond all bounds is not spelled out."""
    if abs(value) >= _HUGE:
        return "a larger number" if value > 0 else "a smaller number"
    return str(value) if isinstance(value, int) else f"{value:g}"


def _length_error(size: int, kind: inspect.StrType | inspect.ListType, path: str) -> BadRequest | None:
    a_noun = _JSON_TYPES[type(kind)][1]
    noun = a_noun.partition(" ")[2]
    if kind.min_length is not None and size < kind.min_length:
        text = f"empty {noun}. Expected {a_noun} with minimum length {kind.min_length}, but got an empty {noun} instead"
        return OutOfRange(f"Invalid '{path}': {text}.", code=f"empty_{noun}", param=path)
    if kind.max_length is not None and size > kind.max_length:
        text = f"{noun} too long. Expected {a_noun} with maximum length {kind.max_length}, but got one of length {size}"
        return OutOfRange(f"Invalid '{path}': {text}.", code=f"{noun}_above_max_length", param=path)
    return None


def _string_error(value: str, kind: inspect.StrType, path: str) -> BadRequest | None:
    if (error := _length_error(len(value), kind, path)) is not None:
        return error
    if kind.pattern is not None and not re.search(kind.pattern, value):
        pattern = kind.pattern.removesuffix(r"(?!\n)")
        text = f"string does not match pattern. Expected a string that matches the pattern '{pattern}'"
        return invalid(path, text)
    return None


def _not_among(value: str, allowed: Iterable[Any], path: str) -> BadRequest:
    supported = ", ".join(f"'{one}'" for one in allowed)
    return InvalidValue(f"Invalid value: '{_shown(value)}'. Supported values are: {supported}.", param=path)


def _shown(text: str) -> str:
    """A caller's text, short, and without lone surrogates, which no answer could carry."""
    return text[:64].encode("utf-8", "replace").decode()


# Containers --------------------------------------------------------------------------------------------------------


def _list_error(value: list[Any], kind: inspect.ListType, path: str) -> BadRequest | None:
    if (error := _length_error(len(value), kind, path)) is not None:
        return error
    for index, item in enumerate(value):
        if (error := first_error(item, kind.item_type, f"{path}[{index}]")) is not None:
            return error
    return None


def _dict_error(value: dict[str, Any], kind: inspect.DictType, path: str) -> BadRequest | None:
    if kind.max_length is not None and len(value) > kind.max_length:
        text = f"too many properties. Expected at most {kind.max_length}, but got {len(value)}"
        return invalid(path, text)
    for key, item in value.items():
        where = f"{path}.{_shown(key)}"
        error = first_error(key, kind.key_type, where) or first_error(item, kind.value_type, where)
        if error:
            return error
    return None


def _struct_error(value: dict[str, Any], members: list[inspect.StructType], path: str) -> BadRequest | None:
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
        error = first_error(item, fields[key].type, f"{path}.{key}") if key in fields else None
        if error:
            return error
    for name, field in fields.items():
        if field.required and name not in value:
            return MissingParameter(f"Missing required parameter: '{path}.{name}'.", param=f"{path}.{name}")
    return None
