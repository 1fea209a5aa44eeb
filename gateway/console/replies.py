"""What the function of a route returns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from typing import Any

from msgspec import Struct

PAGE = 50  # rows of a list on a page


class View(Struct, frozen=True):
    """A page: a template with its values. `status` counts only if no input was refused."""

    template: str  # the file in templates/
    title: str
    values: Mapping[str, Any] = {}
    status: int = 200


class Redirect(Struct, frozen=True):
    """Another page of the console; `path` begins with "/" and does not have `root_path`."""

    path: str


class Download(Struct, frozen=True):
    """A file that the browser saves. If the browser leaves, `pieces` is cancelled."""

    name: str  # letters, digits and . _ -
    content_type: str
    pieces: AsyncGenerator[bytes]


class Document(Struct, frozen=True):
    """JSON for a script of a page."""

    content: bytes


class Stream(Struct, frozen=True):
    """Lines of JSON for a script of a page, each sent at once. If the browser leaves, `lines` is cancelled."""

    lines: AsyncGenerator[bytes]


Reply = View | Redirect | Download | Document | Stream
