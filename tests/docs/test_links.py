"""Links between the pages lead to files and headings that exist; pages are short enough to read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.claims import ROOT, anchor, page_files, page_name, sections

PAGES = [*page_files(), *(ROOT / name for name in ("CONTRIBUTING.md", "RELEASING.md", "SECURITY.md"))]
LARGEST = 30_000  # bytes of a page for operators


@cache
def anchors(path: Path) -> set[str]:
    """The addresses of the headings of a page: a title that comes again has a number."""
    found: set[str] = set()
    seen = Counter[str]()
    for title, _ in sections(path.read_text(encoding="utf-8")):
        name = anchor(title)
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def links(path: Path) -> Iterator[tuple[Path, str]]:
    """The file and the heading of each link to a file of the repository."""
    text = re.sub(r"^```.*?^```$|`[^`\n]*`", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            file, _, heading = target.partition("#")
            yield ((path.parent / file).resolve() if file else path), heading


@pytest.mark.parametrize("path", PAGES, ids=page_name)
def test_each_link_leads_to_a_file_and_a_heading(path: Path) -> None:
    for file, heading in links(path):
        assert file.exists(), file
        assert not heading or heading in anchors(file), f"{file.name}#{heading}"


def test_links_are_found() -> None:
    assert sum(1 for path in PAGES for _ in links(path)) > 300
    assert "what-is-charged" in anchors(ROOT / "docs" / "prices.md")


@pytest.mark.parametrize("folder", ["cli", "operations"])
def test_pages_for_operators_are_short_and_linked_on_the_first_one(folder: str) -> None:
    pages = [ROOT / "docs" / f"{folder}.md", *(ROOT / "docs" / folder).glob("*.md")]
    assert [path.name for path in pages if path.stat().st_size > LARGEST] == []
    assert {file for file, _ in links(pages[0])} >= set(pages[1:])
