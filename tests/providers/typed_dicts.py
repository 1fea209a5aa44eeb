"""A strict check of JSON values against a vendor's TypedDicts: unknown keys are faults, which no type checker's are.

pydantic cannot serve here: it validates an `Iterable` only when somebody iterates, after the union was decided.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator
from typing import Any, Union

import typing_extensions

OPEN = {"InputSchemaTyped"}  # TypedDicts that take any further key


def faults(value: Any, kind: Any, path: str = "body") -> list[str]:
    """What is wrong with `value` as a `kind`; empty when nothing is."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin in {typing_extensions.Required, typing_extensions.NotRequired, typing.Annotated}:
        return faults(value, inner[0], path)
    if origin in {Union, types.UnionType}:
        return _faults_of_union(value, inner, path)
    if origin is typing.Literal or origin is typing_extensions.Literal:
        return [] if value in inner else [f"{path}: {value!r} is none of {inner}"]
    if typing_extensions.is_typeddict(kind):
        return list(_faults_of_object(value, kind, path))
    if origin is dict or kind is dict:
        return [] if isinstance(value, dict) else [f"{path}: {value!r} is no object"]
    if origin is not None or getattr(kind, "_is_protocol", False):  # Iterable, List, Sequence
        if not isinstance(value, list):
            return [f"{path}: {value!r} is no array"]
        return [fault for index, item in enumerate(value) for fault in faults(item, inner[0], f"{path}[{index}]")]
    if kind in {object, Any}:
        return []
    fits = type(value) in {int, float} if kind is float else type(value) is kind
    return [] if fits else [f"{path}: {value!r} is no {getattr(kind, '__name__', kind)}"]


def _faults_of_union(value: Any, kinds: tuple[Any, ...], path: str) -> list[str]:
    found = [faults(value, kind, path) for kind in kinds if kind is not type(None) or value is None]
    # The alternative that comes closest says the most.
    return min(found, key=lambda one: (len(one), one), default=[f"{path}: no alternative"])


def _faults_of_object(value: Any, kind: Any, path: str) -> Iterator[str]:
    if not isinstance(value, dict):
        yield f"{path}: {value!r} is no object"
        return
    hints: dict[str, Any] = typing_extensions.get_type_hints(kind, include_extras=True)
    for name, hint in hints.items():
        # `__required_keys__` misses those that are written as text, which is what `annotations` makes of all.
        origin: Any = typing.get_origin(hint)
        if origin is typing_extensions.Required and name not in value:
            yield f"{path}.{name}: missing"
    for name, item in value.items():
        if name in hints:
            yield from faults(item, hints[name], f"{path}.{name}")
        elif kind.__name__ not in OPEN:
            yield f"{path}.{name}: unknown to {kind.__name__}"
