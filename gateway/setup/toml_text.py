"""Writes TOML: tables of plain values, each with comments before it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import date
from decimal import Decimal
from typing import Any

from msgspec import Struct

_BARE = re.compile(r"[A-Za-z0-9_-]+", re.ASCII)


class Section(Struct):
    """A table, such as [models."gpt-5"]."""

    path: list[str]
    values: dict[str, Any] = {}
    comments: list[str] = []
    is_commented: bool = False  # it stands for something that cannot be written


def write_sections(sections: Iterable[Section]) -> str:
    """The text of all tables, with an empty line between two."""
    return "\n\n".join("\n".join(_lines(section)) for section in sections) + "\n"


def comment_lines(comments: Iterable[str]) -> list[str]:
    """Comments, one line each, each text once."""
    return [f"# {' '.join(comment.split())}" for comment in dict.fromkeys(comments)]


def _lines(section: Section) -> list[str]:
    head = f"[{'.'.join(map(_key, section.path))}]"
    lines = [head, *(f"{_key(name)} = {_value(value)}" for name, value in section.values.items())]
    if section.is_commented:
        lines = [f"# {line}" for line in lines]
    return [*comment_lines(section.comments), *lines]


def inline_value(value: Any) -> str:
    """A value on one line."""
    return _value(value)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _text(name)


def _value(value: Any) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case Decimal():
            text = format(value.normalize(), "f")
            return text if "." in text else f"{text}.0"
        case int() | float():
            return str(value)
        case date():
            return value.isoformat()
        case dict():
            return "{ " + ", ".join(f"{_key(name)} = {_value(item)}" for name, item in value.items()) + " }"
        case list():
            return "[" + ", ".join(map(_value, value)) + "]"
        case _:
            return _text(str(value))


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
