"""The runbook of docs/ as HTML, so that a finding leads to what to do about it without a network.

Links to other documents become their text: the console does not have them.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it.token import Token

#: In an installed package, and in a checkout.
PLACES = (Path(__file__).parent / "runbook.md", Path(__file__).parents[2] / "docs" / "runbook.md")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


@cache
def runbook_html() -> str:
    """The HTML: each heading has its anchor as an id."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False})
    tokens = reader.parse(COMMENT.sub("", _text()))
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrs["id"] = anchor(tokens[at + 1].content)
            token.attrs["tabindex"] = "-1"  # a link to the section moves the focus
        elif token.type == "inline":
            _unlink(token.children or [])
    _without_title(tokens)
    html: str = reader.renderer.render(tokens, reader.options, {})
    return html


def _text() -> str:
    return next(path for path in PLACES if path.is_file()).read_text(encoding="utf-8")


def anchor(title: str) -> str:
    """The id of a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _unlink(tokens: list[Token]) -> None:
    """Make links to other documents plain text."""
    is_foreign = False
    for token in tokens:
        if token.type == "link_open":
            is_foreign = not str(token.attrs["href"]).startswith("#")
        if token.type in ("link_open", "link_close") and is_foreign:
            token.tag, token.attrs = "span", {}


def _without_title(tokens: list[Token]) -> None:
    """The page has a title of its own."""
    if tokens and tokens[0].type == "heading_open" and tokens[0].tag == "h1":
        del tokens[:3]
