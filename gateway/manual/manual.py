"""All pages: what each one is called, its HTML, and the search. Each is made once in a process, when it is needed.

Its functions read files and take up to some hundred milliseconds, so an event loop calls them in a thread.
"""

from __future__ import annotations

from functools import cached_property
from threading import Lock
from typing import Final

from msgspec import Struct

from gateway.manual.files import PageEntry, PageGroup, read_groups, read_page
from gateway.manual.headings import first_paragraph, sections_of
from gateway.manual.page_html import Page, Picture, page_html
from gateway.manual.search_index import Hits, SearchIndex

LONGEST: Final = 180  # characters of the sentence that says what a page is about


class PageName(Struct, frozen=True):
    """A page of the navigation."""

    name: str
    title: str
    about: str  # its first sentence


class NamedGroup(Struct, frozen=True):
    """Pages under one heading of the navigation; "" for those above all headings."""

    title: str
    pages: tuple[PageName, ...]


class Manual:
    """The documentation. Several threads may use it. It keeps no more pages than the navigation has."""

    def __init__(self, picture: Picture) -> None:
        self._picture = picture
        self._lock = Lock()
        self._pages: dict[str, Page] = {}

    def groups(self) -> list[NamedGroup]:
        """The navigation."""
        return self._contents.groups

    def page(self, name: str) -> Page | None:
        """The page of a name, such as `operations/start`; None for an unknown one."""
        if name not in self._contents.sections:
            return None
        with self._lock:
            if name not in self._pages:
                self._pages[name] = page_html(name, read_page(name), self._picture)
            return self._pages[name]

    def search(self, query: str) -> Hits:
        """The sections that are about the words of a query."""
        return self._contents.index.search(query)

    @property
    def _contents(self) -> _Contents:
        with self._lock:
            return self._read

    @cached_property
    def _read(self) -> _Contents:
        return _Contents(read_groups())


class _Contents:
    """What is read of all pages at once."""

    def __init__(self, groups: list[PageGroup]) -> None:
        texts = {one.name: read_page(one.name) for group in groups for one in group.pages}
        self.sections = {name: sections_of(name, text) for name, text in texts.items()}
        self.groups = [
            NamedGroup(group.title, tuple(self._named(one, texts[one.name]) for one in group.pages)) for group in groups
        ]
        self.index = SearchIndex([section for sections in self.sections.values() for section in sections])

    def _named(self, entry: PageEntry, text: str) -> PageName:
        title = entry.label or self.sections[entry.name][0].page_title
        return PageName(entry.name, title, _about(text))


def _about(text: str) -> str:
    """The first sentence of a page that says what it is about; one of some pages says what they are made from."""
    sentences = (one.rstrip(".:") for one in first_paragraph(text).split(". "))
    sentence = next((one for one in sentences if not one.startswith("This page is made from")), "")
    return f"{sentence[:LONGEST].rpartition(' ')[0]} …" if len(sentence) > LONGEST else sentence
