"""Pages of a list. A cursor names the last object of a page, so that objects added meanwhile move nothing."""

from __future__ import annotations

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from typing import Annotated, Any, Generic, TypeVar

import msgspec
from msgspec import Meta, Struct

from gateway.admin.pages import MOST
from gateway.errors import InvalidValue
from gateway.web.zero_character import ZERO

T = TypeVar("T")

Limit = Annotated[int, Meta(ge=1, le=MOST, description="The most objects on the page.")]
Cursor = Annotated[str, Meta(max_length=2000, description="`next_cursor` of the page before.")]


class PageQuery(Struct, frozen=True, kw_only=True):
    """The query of a list."""

    limit: Limit = 100
    cursor: Cursor = ""


class Page(Struct, Generic[T], frozen=True):
    """A page of a list; `next_cursor` is null on the last one."""

    data: list[T]
    next_cursor: str | None


def page(kind: str, data: Sequence[Any], last: Sequence[str | int] | None) -> dict[str, Any]:
    """The document of a page. `last` is the position of its last object; None if no page follows."""
    return {"data": list(data), "next_cursor": None if last is None else write_cursor(kind, last)}


def write_cursor(kind: str, position: Sequence[str | int]) -> str:
    """The position in lists of this kind, as opaque text."""
    return urlsafe_b64encode(msgspec.msgpack.encode([kind, *position])).decode().rstrip("=")


def read_cursor(kind: str, text: str, types: type[T]) -> T | None:
    """The position of a cursor, as `types`, a type of tuples; None for an empty one. InvalidValue."""
    if not text:
        return None
    try:
        values = msgspec.msgpack.decode(urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=list[str | int])
        if values[:1] == [kind] and all(map(_is_possible, values)):
            return msgspec.convert(values[1:], types)
    except (ValueError, msgspec.MsgspecError):
        pass
    raise InvalidValue("Invalid 'cursor': it is not a next_cursor of this list.", param="cursor")


def _is_possible(value: str | int) -> bool:
    """Whether a list can have such a position: the database has numbers of 64 bits, and no character U+0000."""
    return ZERO not in value if isinstance(value, str) else 0 <= value < 2**63
