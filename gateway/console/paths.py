"""Paths of the console, without `root_path`. One that comes from outside is never an address of another site."""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlencode

HOME = "/"
MAX = 2000  # characters
#: A path of printable ASCII that begins with one slash. Browsers take a backslash for a slash.
_PATH = re.compile(r"/(?![/\\])[\x21-\x5b\x5d-\x7e]*", re.ASCII)


def own_path(text: str) -> str:
    """The text if it is a path of the console; else the first page."""
    return text if len(text) <= MAX and _PATH.fullmatch(text) else HOME


def path_with(path: str, **query: str | int | Sequence[str]) -> str:
    """A path with a query; empty values are left out."""
    text = urlencode({name: value for name, value in query.items() if value not in ("", [], ())}, doseq=True)
    return f"{path}{'?' if text else ''}{text}"
