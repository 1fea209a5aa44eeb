"""The HTML of a page, from its Markdown.

Addresses are relative, so the HTML does not depend on where the console is served. Links to pages lead to the console,
and links to other files of the repository become their text: an installation does not have them. Nothing of the HTML
needs a script or a style of its own, which the Content-Security-Policy of the console forbids.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from gateway.manual.files import file_of, page_of
from gateway.manual.headings import Anchors, Heading, plain_line, shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from markdown_it import MarkdownIt
    from markdown_it.token import Token

#: The path of a picture of the repository, without a slash before it; "" for one that is not served.
Picture = Callable[[str], str]
IN_CONTENTS = (2, 3)  # levels of the headings that the contents of a page list
_ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)


class Page(Struct, frozen=True):
    """A page that is ready to be shown."""

    name: str
    title: str
    html: str  # with the title as its first heading
    headings: tuple[Heading, ...]

    @property
    def contents(self) -> list[Heading]:
        """The headings for the contents."""
        return [heading for heading in self.headings if heading.level in IN_CONTENTS]


def page_html(name: str, text: str, picture: Picture) -> Page:
    """The page of a name from its Markdown."""
    reader = _reader()
    tokens = reader.parse(shown(text))
    links, anchors, headings = _Links(name, picture), Anchors(), list[Heading]()
    for at, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = _heading(token, tokens[at + 1], anchors)
            headings.append(heading)
        elif token.type == "inline":
            token.children = links.changed(token.children or [])
            if not token.children:  # of a picture that is not served
                tokens[at - 1].hidden = tokens[at + 1].hidden = True
        elif token.type in ("table_open", "fence", "code_block"):
            token.meta["label"] = headings[-1].title if headings else ""
        elif token.type in ("th_open", "td_open"):
            _align(token)
    html: str = reader.renderer.render(tokens, reader.options, {})
    return Page(name, headings[0].title if headings else name, html, tuple(headings))


def _reader() -> MarkdownIt:
    from markdown_it import MarkdownIt  # few processes show a page

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.add_render_rule("table_open", _open_table)
    reader.add_render_rule("table_close", lambda *_: "</table></div>\n")
    for name in ("fence", "code_block"):
        reader.add_render_rule(name, _code)
    return reader


def _heading(token: Token, inline: Token, anchors: Anchors) -> Heading:
    """Give a heading its id, and a link to itself."""
    from markdown_it.token import Token

    heading = Heading(int(token.tag[1]), plain_line(inline.content), anchors.of(inline.content))
    token.attrs.update({"id": heading.anchor, "tabindex": "-1"})  # a link to the section moves the focus
    if heading.level > 1:
        title, anchor = escape(heading.title), escape(heading.anchor)
        mark = f' <a class="anchor" href="#{anchor}" aria-label="Link to {title}">#</a>'
        inline.children = [*(inline.children or []), Token("html_inline", "", 0, content=mark)]
    return heading


def _align(token: Token) -> None:
    """A cell has a class instead of a style."""
    style = str(token.attrs.pop("style", ""))
    if style.endswith("right"):
        token.attrs["class"] = "num"


def _open_table(*args: Any) -> str:
    tokens, at = args[1], args[2]  # after the renderer
    region = f'<div class="scroll" tabindex="0" role="region" aria-label="Table: {_label(tokens, at)}">'
    return f'{region}<table class="prose">\n'


def _code(*args: Any) -> str:
    """A block can be scrolled by the keyboard."""
    tokens, at = args[1], args[2]
    text = escape(tokens[at].content, quote=False)
    return f'<pre tabindex="0" role="region" aria-label="Code: {_label(tokens, at)}"><code>{text}</code></pre>\n'


def _label(tokens: Sequence[Token], at: int) -> str:
    """The heading above, with the place of the token on the page: regions of a page have different names."""
    number = sum(1 for token in tokens[: at + 1] if token.type == tokens[at].type)
    return f"{escape(str(tokens[at].meta['label']))}, {number}"


class _Links:
    """Changes the links and the pictures of one page."""

    def __init__(self, page: str, picture: Picture) -> None:
        self._folder = posixpath.dirname(file_of(page))
        self._up = "../" * page.count("/")  # to the folder of all pages
        self._picture = picture

    def changed(self, tokens: Sequence[Token]) -> list[Token]:
        """The tokens of a text with the addresses that they have in the console."""
        found: list[Token] = []
        ends: list[str] = []
        for token in tokens:
            if token.type == "link_open":
                ends.append(self._open(token))
            elif token.type == "link_close":
                token.tag = ends.pop()
            elif token.type == "image" and not self._place(token):
                continue
            found.append(token)
        return found

    def _open(self, token: Token) -> str:
        """Change a link; returns the element that it is now."""
        target = str(token.attrs["href"])
        if target.startswith("#") or _ELSEWHERE.match(target):
            return token.tag
        file, _, anchor = target.partition("#")
        path = posixpath.normpath(posixpath.join(self._folder, file))
        if page := page_of(path):
            token.attrs["href"] = f"{self._up}{page}{'#' if anchor else ''}{anchor}"
        else:
            token.tag, token.attrs = "span", {"title": f"{path}, a file of the sources"}
        return token.tag

    def _place(self, token: Token) -> bool:
        """Give a picture its address; False for one that is not served."""
        place = self._picture(posixpath.normpath(posixpath.join(self._folder, str(token.attrs["src"]))))
        if place:
            token.attrs.update({"src": f"../{self._up}{place}", "loading": "lazy"})
        return bool(place)
