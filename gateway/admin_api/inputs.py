"""Queries and bodies of requests, checked against the schemas of the table. Unknown names are refused."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import cache
from typing import Any

import msgspec
import msgspec.inspect
from msgspec import Struct

from gateway.admin.times import checked_moment
from gateway.amounts import parse_amount
from gateway.config.toml_reader import fields_of, suggestion
from gateway.errors import InvalidValue, MissingParameter, UnknownParameter
from gateway.schemas.duplicate_keys import unexplained_names
from gateway.schemas.large_json import LARGE
from gateway.schemas.validation import BodyDecoder
from gateway.web.zero_character import refuse_zero, refuse_zero_in_json
from gateway.whole_numbers import parse_whole_number

#: Money in a body: text, because a JSON number is a binary fraction in most programs.
AMOUNT = r"^[+-]?[0-9]{1,12}(\.[0-9]{1,9})?$(?!\n)"

CURSOR = "cursor"  # the parameter of all lists

_AT = re.compile(r" - at `\$\.?(.*)`$", re.DOTALL)


def read_body(kind: type[Struct], content: bytes) -> Struct:
    """The body as `kind`; BadRequest names the field that is wrong, or that an object has twice.

    An empty body is an empty object.
    """
    refuse_zero_in_json(content)
    body: Struct
    body, fields = _decoder(kind).decode(content or b"{}")
    if len(content) <= LARGE:  # the keys of a larger one were checked
        unexplained_names(content or b"{}", len(fields))
    _refuse_unknown(fields, kind)
    _check_times(body)
    return body


def read_query(kind: type[Struct] | None, values: Mapping[str, list[bytes]]) -> Struct | None:
    """The query as `kind`; BadRequest. Each name may be given once, and with a value.

    A filter without a value would list everything, and a script whose variable is empty changes everything it lists. So
    the text `null`, which programs write for what is not there, is no value either. An empty cursor is the first page.
    """
    _refuse_unknown(values, kind)
    for name, found in values.items():
        if len(found) > 1:
            raise InvalidValue(f"Invalid '{name}': it is given {len(found)} times.", param=name)
        if not found[0] and name != CURSOR:
            raise _no_value(name)
    if kind is None:
        return None
    try:
        texts = {name: found[0].decode() for name, found in values.items()}
        refuse_zero({name: [text] for name, text in texts.items()})
        _refuse_other_numbers(texts, kind)
        query = msgspec.convert(texts, kind, strict=False)
    except msgspec.ValidationError as error:
        match = _AT.search(str(error))
        name, cause = match[1] if match else "", _AT.sub("", str(error))
        if cause.startswith("Object missing required field"):
            name = cause.split("`")[1]
            raise MissingParameter(f"Missing required parameter: '{name}'.", param=name) from None
        raise InvalidValue(f"Invalid '{name}': {cause}."[:300], param=name) from None
    except UnicodeDecodeError:
        raise InvalidValue("The query is not valid UTF-8") from None
    for name, field in fields_of(kind).items():
        if name in texts and getattr(query, field.name) is None:
            raise _no_value(name)
    _check_times(query)
    return query


def _no_value(name: str) -> InvalidValue:
    return InvalidValue(f"Invalid '{name}': it has no value. Leave it out, or give one.", param=name)


def _check_times(values: Struct) -> None:
    """Require times that can be computed with; near the years 1 and 9999 another time zone is out of range."""
    for name, field in fields_of(type(values)).items():
        value = getattr(values, field.name)
        if isinstance(value, datetime):
            try:
                checked_moment(value)
            except ValueError as error:
                raise InvalidValue(f"Invalid '{name}': {error}.", param=name) from None


def _refuse_other_numbers(texts: Mapping[str, str], kind: type[Struct]) -> None:
    """Require digits in whole numbers; msgspec also takes 1e1 and 5.0."""
    for name in _whole_numbers(kind) & texts.keys():
        try:
            parse_whole_number(texts[name])
        except ValueError as error:
            raise InvalidValue(f"Invalid '{name}': {error}.", param=name) from None


def amount_of(text: str, param: str) -> int:
    """Nano-units of an amount in a body; InvalidValue."""
    try:
        return parse_amount(text)
    except ValueError as error:
        raise InvalidValue(f"Invalid '{param}': {error}.", param=param) from None


def _refuse_unknown(names: Iterable[str], kind: type[Struct] | None) -> None:
    known = fields_of(kind) if kind is not None else {}
    for name in names:
        if name not in known:
            shown = name[:64].encode("utf-8", "replace").decode()
            raise UnknownParameter(f"Unknown parameter: '{shown}'{suggestion(name[:64], known)}.", param=shown)


@cache
def _whole_numbers(kind: type[Struct]) -> frozenset[str]:
    """The names of the fields that are whole numbers, or null."""
    info = msgspec.inspect.type_info(kind)
    assert isinstance(info, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in info.fields if _is_whole_number(field.type))


def _is_whole_number(kind: msgspec.inspect.Type) -> bool:
    while isinstance(kind, msgspec.inspect.Metadata):
        kind = kind.type
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(map(_is_whole_number, kind.types))
    return isinstance(kind, msgspec.inspect.IntType)


@cache
def _decoder(kind: type[Struct]) -> BodyDecoder[Any]:
    return BodyDecoder(kind)
