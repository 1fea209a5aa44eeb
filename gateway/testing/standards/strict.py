"""Reads a JSON document with a pydantic class, and names what the class has no place for.

The classes of SDKs take unknown members and keep them, those of other packages leave them out without a word. So the
document is compared with what was read. Sharp edge: members of ours begin with `x_`, and are never unknown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import msgspec
from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

OURS = "x_"
MOST = 20  # faults of one document


def faults(kind: Any, data: bytes, *, is_lax: bool = False) -> list[str]:
    """What is wrong with a document, at most `MOST` things, each with its path; `kind` is a class or a union.

    `is_lax`: numbers and times may be texts, as Google's classes read them.
    """
    adapter = _adapter(kind)
    try:
        read = adapter.validate_json(data, strict=not is_lax)
    except ValidationError as error:
        wrong = [one for one in error.errors() if not _is_ours(one)]
        return [f"{_path(one['loc'])}: {one['msg']}" for one in wrong[:MOST]]
    return [f"{path}: unknown member" for path in list(_unknown(read, msgspec.json.decode(data), ""))[:MOST]]


@cache
def _adapter(kind: Any) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _is_ours(error: ErrorDetails) -> bool:
    return error["type"] == "extra_forbidden" and str(error["loc"][-1]).startswith(OURS)


def _path(location: tuple[int | str, ...]) -> str:
    return ".".join(map(str, location))


def _unknown(read: Any, sent: Any, path: str) -> Iterator[str]:
    """The paths of members of `sent` that the class of `read` does not name."""
    if isinstance(read, RootModel):
        yield from _unknown(read.root, sent, path)
    elif isinstance(read, BaseModel) and isinstance(sent, Mapping):
        known = _names(type(read))
        for name, value in sent.items():
            here = f"{path}.{name}" if path else name
            if name not in known:
                if not name.startswith(OURS):
                    yield here
            else:
                yield from _unknown(getattr(read, known[name]), value, here)
    elif isinstance(read, list | tuple) and isinstance(sent, list):
        for index, (one, value) in enumerate(zip(read, sent, strict=True)):
            yield from _unknown(one, value, f"{path}[{index}]")


@cache
def _names(kind: type[BaseModel]) -> Mapping[str, str]:
    """The attribute of each member of a document, by the member's name."""
    return {_sent_name(name, field): name for name, field in kind.model_fields.items()}


def _sent_name(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias or field.alias
    return alias if isinstance(alias, str) else name
