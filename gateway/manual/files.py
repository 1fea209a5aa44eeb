"""The files of the documentation: in the package `files/` of a wheel, or in the checkout that is installed in place.

Both have the layout of the repository: `docs/`, some pages of the root, and the navigation of the documentation site.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

from msgspec import Struct

_PACKED: Final = Path(__file__).parent / "files"
ROOT: Final = _PACKED if _PACKED.is_dir() else Path(__file__).parents[2]
NAVIGATION: Final = "conf/site/mkdocs.yml"
#: Files of the root, and what the site and the console call them.
FRONT: Final = {"README.md": "index", "CHANGELOG.md": "CHANGELOG", "SECURITY.md": "SECURITY"}
#: Pages about work on the sources: which tests hold the documentation, and how to contribute and to release.
LEFT_OUT: Final = frozenset({"claims", "CONTRIBUTING", "RELEASING"})
_ENTRY = re.compile(r"( *)- (?:([^:]+):)? ?([\w./-]+\.md)?")


class PageEntry(Struct, frozen=True):
    """A page in the navigation; without a label it has its own title."""

    name: str
    label: str


class PageGroup(Struct, frozen=True):
    """Pages under one heading of the navigation; those of the title "" are above all headings."""

    title: str
    pages: tuple[PageEntry, ...]


def page_of(file: str) -> str:
    """The page of a file of the repository, such as `operations/start` of `docs/operations/start.md`; "" for none."""
    name = FRONT.get(file, "")
    if not name and file.startswith("docs/") and file.endswith(".md"):
        name = file.removeprefix("docs/").removesuffix(".md")
    return "" if name in LEFT_OUT else name


def file_of(page: str) -> str:
    """The file of a page, as a path in the repository."""
    return next((file for file, name in FRONT.items() if name == page), f"docs/{page}.md")


def read_page(page: str) -> str:
    """The Markdown of a page of the navigation."""
    return (ROOT / file_of(page)).read_text(encoding="utf-8")


def read_groups() -> list[PageGroup]:
    """The navigation of the documentation site, without the pages that are left out."""
    return groups_of((ROOT / NAVIGATION).read_text(encoding="utf-8"))


def groups_of(text: str) -> list[PageGroup]:
    """The groups that the `nav` of an mkdocs.yml names. It is the last key, and has two levels."""
    alone, found = list[PageEntry](), dict[str, list[PageEntry]]()
    title = ""
    for line in text.partition("\nnav:\n")[2].splitlines():
        entry = _ENTRY.fullmatch(line)
        if entry is None:
            raise ValueError(f"not an entry of the navigation: {line!r}")
        depth, label, file = len(entry[1]), entry[2], entry[3]
        if file is None:
            title = label
        elif (page := file.removesuffix(".md")) not in LEFT_OUT:
            (alone if depth == 2 else found.setdefault(title, [])).append(PageEntry(page, label or ""))
    return [PageGroup("", tuple(alone)), *(PageGroup(name, tuple(pages)) for name, pages in found.items())]


def pictures() -> dict[str, Path]:
    """The drawings of the pages by their path in the repository. Pictures of the console itself are left out."""
    return {path.relative_to(ROOT).as_posix(): path for path in sorted((ROOT / "docs" / "img").glob("*.svg"))}
