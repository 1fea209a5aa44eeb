"""Finds links of built HTML that lead to no file of the site, or to no element of a page."""

from __future__ import annotations

from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ADDRESSES = {"a": "href", "link": "href", "img": "src", "script": "src"}


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.targets: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids |= {value for name in ("id", "name") if (value := found.get(name))}
        if target := found.get(_ADDRESSES.get(tag, "")):
            self.targets.add(target)


def broken_links(site: Path) -> list[str]:
    """One line for each broken link of the HTML files in a folder and its folders: the file and the target."""

    @cache
    def read(page: Path) -> _Reader:
        reader = _Reader()
        reader.feed(page.read_text(encoding="utf-8"))
        return reader

    def leads(page: Path, target: str) -> bool:
        parts = urlsplit(target)
        if parts.scheme or parts.netloc:
            return True
        if parts.path.startswith("/"):
            return False  # the site may be in any folder of a server
        place = (page.parent / unquote(parts.path)).resolve() if parts.path else page
        place = place / "index.html" if place.is_dir() else place
        if not place.is_relative_to(site.resolve()) or not place.is_file():
            return False
        # The theme has links to elements that its script makes.
        anchor = unquote(parts.fragment)
        return not anchor or place.suffix != ".html" or anchor in read(place).ids or anchor.startswith("__")

    pages = sorted(page.resolve() for page in site.rglob("*.html"))
    return [
        f"{page.relative_to(site.resolve())}: {target}"
        for page in pages
        for target in sorted(read(page).targets)
        if not leads(page, target)
    ]
