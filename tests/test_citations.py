"""Sources and pages cite only documents of this repository, and only sections that the pages have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
FOLDERS = ("benchmarks", "conf", "docs", "gateway", "plugins", "providers", "tests")
KINDS = frozenset({".c", ".h", ".lua", ".md", ".py", ".toml"})
DOCUMENT = re.compile(r"[\w./-]*\w\.md\b")
#: A citation as comments and docstrings write it: docs/prices.md, "Estimates".
SECTION = re.compile(r"(docs/[\w/-]+\.md),\s+(?:#:?\s+)?\"([^\"\n]+)\"")


FRONT_PAGE = "index.md"  # of the documentation site, which is README.md


def sources() -> Iterator[Path]:
    """Every text file that may cite a document."""
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in KINDS and not {"__pycache__", "build"} & set(path.parts):
                yield path
    yield from (path for path in ROOT.iterdir() if path.suffix in KINDS or path.name == "tox.ini")


@cache
def texts() -> dict[Path, str]:
    """Not read at import: each process of a run imports all tests."""
    return {path: path.read_text(encoding="utf-8") for path in sources()}


@cache
def names() -> set[str]:
    return {path.name for path in texts() if path.suffix == ".md"}


def exists(cited: str, path: Path) -> bool:
    """Whether a document is there: by its name, or by its path from the root, from docs/ or from the file."""
    if "/" not in cited:
        return cited in names() or cited == FRONT_PAGE
    return any((folder / cited).is_file() for folder in (ROOT, ROOT / "docs", path.parent))


def test_every_cited_document_is_in_the_repository() -> None:
    lines = [(path, line) for path, text in texts().items() for line in text.splitlines() if ".md" in line]
    cited = [(path, name) for path, line in lines for name in DOCUMENT.findall(line)]
    assert len(cited) > 100
    assert [(str(path.relative_to(ROOT)), name) for path, name in cited if not exists(name, path)] == []


def test_every_cited_section_is_on_its_page() -> None:
    code = {path: text for path, text in texts().items() if path.suffix != ".md"}
    cited = [(path, *found) for path, text in code.items() for found in SECTION.findall(text)]
    assert len(cited) > 10
    for path, page, heading in cited:
        headings = re.findall(r"^#+ (.*)$", texts()[ROOT / page], re.MULTILINE)
        assert heading in headings, (path, page)


@pytest.mark.parametrize("phrase", [r"wire\s+(#:?\s+)?contract", r"contract's?\s+table"])
def test_sources_cite_only_contracts_in_the_repository(phrase: str) -> None:
    pattern = re.compile(phrase, re.IGNORECASE)
    assert [str(path.relative_to(ROOT)) for path, text in texts().items() if pattern.search(text)] == []
