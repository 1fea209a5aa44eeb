"""Reads an answer that is not quite of the dialect's shape: what fits is kept, the rest counts as absent.

An upstream charges for an answer whether it is well formed or not. Servers write nulls for absence, numbers as texts,
one object in place of a list, a byte order mark, NaN, or lone surrogates. `fitted(data, kind)` is the slow
path behind the typed decoders of a dialect. Sharp edge: small values take many times the bytes of their text, so a
document with more than `MOST_VALUES` is not read so.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Raw, Struct, structs

from gateway.schemas.answer_surrogates import encode_whole, read_surrogates, whole_values

T = TypeVar("T")

MOST_VALUES = 200_000
BOM = b"\xef\xbb\xbf"


def fitted(data: bytes, kind: type[T], *, strict: bool = False, surrogates: bool = False) -> T:
    """The object in `data`; ValueError or a MsgspecError if it is none, or lacks a required field.

    `strict`: a number that is written as a text is none. `surrogates`: texts keep surrogates.
    """
    return fitted_value(read_json(data, surrogates=surrogates), kind, strict=strict)


def fitted_value(value: Any, kind: type[T], *, strict: bool = False) -> T:
    """The same for a document that is decoded."""
    fit: T = _Fitting(strict).fit(value, kind)
    return fit


def read_json(data: bytes, *, surrogates: bool = False) -> Any:
    """The document in JSON, also in JSON as Python writes it; a lone surrogate becomes U+FFFD, or stays."""
    if sum(map(data.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise ValueError(f"not of the usual shape, and more than {MOST_VALUES} values")
    data = data.removeprefix(BOM)
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        document = read_surrogates(data)
        return document if surrogates else whole_values(document)


class _Fitting:
    """Makes objects of the parts of a document that fit."""

    def __init__(self, strict: bool) -> None:
        self._strict = strict

    def fit(self, value: Any, kind: Any) -> Any:
        """`value` as `kind`; ValidationError if no part of it is."""
        if Raw in _alternatives(kind):
            return Raw(encode_whole(value))
        with suppress(msgspec.ValidationError):
            return msgspec.convert(value, kind, strict=self._strict)
        for one in _alternatives(kind):
            if isinstance(value, dict) and _is_struct(one):
                return one(**self._fields_of(value, one))
            if get_origin(one) is list and isinstance(value, dict | list):
                return self._items_of(value if isinstance(value, list) else [value], get_args(one)[0])
        raise msgspec.ValidationError(f"{type(value).__name__} does not fit")

    def _fields_of(self, value: dict[str, Any], kind: type[Struct]) -> dict[str, Any]:
        found = {}
        for field in _fields(kind):
            if field.encode_name in value:
                try:
                    found[field.name] = self.fit(value[field.encode_name], field.type)
                    continue
                except msgspec.ValidationError:
                    pass
            if field.required:
                raise msgspec.ValidationError(f"no valid `{field.encode_name}`")
        return found

    def _items_of(self, values: list[Any], kind: Any) -> list[Any]:
        """The objects that fit; a list of anything else, such as the numbers of a vector, is whole or nothing."""
        if not any(map(_is_struct, _alternatives(kind))):
            return [self.fit(value, kind) for value in values]
        items = []
        for value in values:
            with suppress(msgspec.ValidationError):
                items.append(self.fit(value, kind))
        return items


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type itself."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _alternatives(get_args(kind)[0])
    return get_args(kind) if origin in (Union, UnionType) else (kind,)


@cache
def _fields(kind: type[Struct]) -> tuple[structs.FieldInfo, ...]:
    return structs.fields(kind)
