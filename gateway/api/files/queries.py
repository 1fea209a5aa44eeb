"""The query of a list: `after`, `limit`, `order` and `purpose`."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any
from urllib.parse import parse_qsl

from msgspec import Struct

from gateway.errors import InvalidValue, UnknownParameter

MOST = {"files": 10_000, "batches": 100}  # of one page, as OpenAI has it


class ListQuery(Struct, frozen=True):
    """A valid query."""

    limit: int
    after: str = ""
    newest_first: bool = True
    purpose: str = ""


def read_query(text: str, *, known: Collection[str], usual: int, most: int) -> ListQuery:
    """The query in `text`; InvalidValue or UnknownParameter."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=bool(text), errors="strict", max_num_fields=16)
    except ValueError:
        raise InvalidValue("The query is not valid") from None
    values = dict(pairs)
    for name in values:
        if name not in known:
            raise UnknownParameter(f"Unknown parameter: '{name[:64]}'; known: {', '.join(known)}", param=name[:64])
    limit = values.get("limit", str(usual))
    if not (limit.isascii() and limit.isdecimal() and len(limit) <= len(str(most)) and 1 <= int(limit) <= most):
        raise InvalidValue(f"Invalid 'limit': expected a number from 1 to {most}", param="limit")
    order = values.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidValue("Invalid 'order': expected asc or desc", param="order")
    return ListQuery(int(limit), values.get("after", ""), order == "desc", values.get("purpose", ""))


def list_document(data: list[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """A page of a list in the API's form."""
    first, last = (data[0]["id"], data[-1]["id"]) if data else (None, None)
    return {"object": "list", "data": data, "first_id": first, "last_id": last, "has_more": has_more}
