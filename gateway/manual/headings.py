"""Headings of a page with their anchors, and the text of the section below each one."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from msgspec import Struct

#: With the end of the line before it: a line of its own would become an empty one, which separates the items of a list.
_COMMENT = re.compile(r"[ \t]*\n?[ \t]*<!--.*?-->", re.DOTALL)
#: Parts of a page that say what a reader of the console sees anyway.
_ELSEWHERE = re.compile(r"<!-- elsewhere -->.*?<!-- end of elsewhere -->", re.DOTALL)
_HEADING = re.compile(r"(#{1,6}) +(.+?) *#*")
#: A piece of code, a link or a picture, or a mark of emphasis.
_INLINE = re.compile(r"(`+)(.+?)\1|!?\[((?:`[^`]*`|[^\[\]`])*)\]\([^)]*\)|\*+", re.DOTALL)
_BEGIN = re.compile(r"^ *(?:(?:[-*>]|\d+\.) +|[|:\- ]*-[|:\- ]*$)", re.MULTILINE)  # of an item, a quote; below a head
_DEFINED = re.compile(r"^\| *`([^`]+)` *\|", re.MULTILINE)
_CELL = re.compile(r" *(?<!\\)\| *")


class Heading(Struct, frozen=True):
    """One heading; its anchor is the fragment of an address."""

    level: int
    title: str
    anchor: str


class Section(Struct, frozen=True):
    """A heading of a page, and the plain text up to the next one."""

    page: str
    page_title: str
    heading: Heading
    text: str
    defined: tuple[str, ...] = ()  # what rows of its tables are about, such as settings and error codes


class Anchors:
    """Makes the anchors of a page, as GitHub does: a title that comes again has a number."""

    def __init__(self) -> None:
        self._seen: Counter[str] = Counter()

    def of(self, title: str) -> str:
        """The anchor of the next heading, from its Markdown."""
        name = re.sub(r"[^\w\- ]", "", plain_line(title).lower()).replace(" ", "-")
        count, self._seen[name] = self._seen[name], self._seen[name] + 1
        return f"{name}-{count}" if count else name


def shown(text: str) -> str:
    """The Markdown without comments, and without what is not for the console."""
    return _COMMENT.sub("", _ELSEWHERE.sub("", text))


def plain(text: str) -> str:
    """The text of a piece of Markdown without its marks, with single spaces, and points between the cells of a row."""
    lines = (_row(line) if line.lstrip().startswith("|") else line for line in _BEGIN.sub("", text).splitlines())
    return plain_line("\n".join(lines))


def plain_line(text: str) -> str:
    """The text of a heading, or of the inside of a paragraph: a number at its beginning stays."""
    return " ".join(_INLINE.sub(_unmarked, text).split())


def first_paragraph(text: str) -> str:
    """The plain text of the first paragraph between the title and the next heading; "" for a page without one."""
    blocks = re.split(r"\n(?=##)", shown(text))[0].split("\n\n")[1:]
    return next((plain(block) for block in blocks if block[:1] not in "|`!-"), "")


def _row(line: str) -> str:
    return _CELL.sub(" · ", line.strip().strip("|").strip()).replace("\\|", "|")


def _unmarked(found: re.Match[str]) -> str:
    if found[1]:
        return found[2]
    return plain_line(found[3]) if found[3] is not None else ""


def sections_of(page: str, text: str) -> list[Section]:
    """The sections of the Markdown of a page, of which the first heading is the title."""
    anchors, found = Anchors(), list[Section]()
    for level, title, lines in _parts(shown(text)):
        heading = Heading(level, plain_line(title), anchors.of(title))
        page_title, defined = found[0].page_title if found else heading.title, tuple(_DEFINED.findall(lines))
        found.append(Section(page, page_title, heading, plain(lines), defined))
    return found


def _as_code(line: str) -> str:
    """A line of a block of code as inline code, whose asterisks are no emphasis."""
    marks = "`" * (1 + max((len(run) for run in re.findall("`+", line)), default=0))
    return f"{marks} {line} {marks}" if line.strip() else line


def _parts(text: str) -> Iterator[tuple[int, str, str]]:
    """Level, Markdown of the title and lines of each section; a heading in a block of code is none.

    Lines of such a block are inline code.
    """
    level, title, lines, fence = 0, "", list[str](), ""
    for line in text.splitlines():
        mark = line.lstrip()[:3]
        if mark in ("```", "~~~") and fence in ("", mark):
            fence = "" if fence else mark
            continue
        heading = None if fence else _HEADING.fullmatch(line)
        if heading is None:
            lines.append(_as_code(line) if fence else line)
            continue
        if level:
            yield level, title, "\n".join(lines)
        level, title, lines = len(heading[1]), heading[2], []
    if level:
        yield level, title, "\n".join(lines)
