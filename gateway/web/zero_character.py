"""The character U+0000 in what a client sends. PostgreSQL cannot store it, so it is refused before it gets there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from gateway.errors import InvalidValue

ZERO = "\0"
#: The escape in JSON: the backslash before `u` is not escaped itself.
_ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")


def refuse_zero(fields: Mapping[str, Iterable[str]]) -> None:
    """InvalidValue if a name or a value has the character. `fields`: those of a query or a form."""
    for name, values in fields.items():
        if ZERO in name or any(ZERO in value for value in values):
            shown = name.replace(ZERO, "")[:64]
            raise InvalidValue(f"Invalid '{shown}': it has the character U+0000", param=shown)


def refuse_zero_in_json(content: bytes) -> None:
    """InvalidValue if a text in this JSON document has the character."""
    if _ESCAPED.search(content):
        raise InvalidValue("A text in the body has the character U+0000")
