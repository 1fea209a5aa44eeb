"""README, prices.md, operations.md and scaling.md name the tests that hold their claims.

A claim is followed by a comment in the source of the page: `<!-- held by tests/FILE.py::test_NAME … -->`. It stands at
the end of a paragraph, of an item of a list or of a row of a table, and a rendered page does not show it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/operations.md", "docs/prices.md", "docs/scaling.md")
REFERENCE = re.compile(r"<!-- held by (.*?) -->", re.DOTALL)
#: Sections that say how to do something, or what is not covered.
WITHOUT_CLAIMS = {
    "README.md": {"Run it", "Test it", "Dependencies", "More"},
    "docs/scaling.md": {"Not included"},
}
#: Sections about money of docs/operations.md; docs/prices.md has no others.
MONEY = {
    "What happens when a process ends",
    "Durability of commands",
    "Redis for production",
    "Audit",
    "Late and uncollected",
}
NUMBER = r"\d|\b(two|three|four|five|six|eight|ten|twenty|half|quarter|fifths|tenth|twice|once)\b"
FIGURE = re.compile(NUMBER, re.IGNORECASE)


def sections(text: str) -> dict[str, str]:
    """The text below each heading, without blocks of code."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def blocks(section: str) -> Iterator[str]:
    """The paragraphs, the items of lists and the rows of tables."""
    folded = REFERENCE.sub(lambda found: " ".join(found[0].split()), section)
    for part in re.split(r"\n(?:\s*\n)+|\n(?=- )", folded.strip()):
        if part.startswith("|"):
            yield from part.splitlines()[2:]
        else:
            yield part


def has_figure(block: str) -> bool:
    """Whether a block says a number, apart from names and values in code and from the addresses of links."""
    said = re.sub(r"<!--.*?-->|`[^`]*`|\]\([^)]*\)", "", block, flags=re.DOTALL)
    return FIGURE.search(said) is not None


def faults_of_figures(section: str) -> list[str]:
    """The blocks with a figure and without a reference."""
    return [block for block in blocks(section) if has_figure(block) and not REFERENCE.search(block)]


@cache
def named_tests(path: str) -> dict[str, bool]:
    """The tests of a file, and whether they may pass: not those that are skipped or expected to fail."""
    file = ROOT / path
    if not file.is_file():
        return {}
    functions = [
        node
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith("test_")
    ]
    return {
        node.name: not re.search(r"mark\.(xfail|skip)\b", " ".join(ast.unparse(mark) for mark in node.decorator_list))
        for node in functions
    }


def fault_of_reference(name: str) -> str:
    """What is wrong with a reference; empty if it names a test that runs and must pass."""
    path, _, test = name.partition("::")
    passes = named_tests(path).get(test)
    if passes is None:
        return f"{name}: no such test"
    return "" if passes else f"{name}: skipped or expected to fail"


@pytest.mark.parametrize("page", PAGES)
def test_every_reference_names_a_test_that_must_pass(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    names = [name for found in REFERENCE.findall(text) for name in found.split()]
    assert len(names) > 10
    assert [fault for name in names if (fault := fault_of_reference(name))] == []
    assert text.count("held by tests/") == len(REFERENCE.findall(text))  # none is misspelt


@pytest.mark.parametrize("page", PAGES)
def test_every_section_with_claims_has_a_reference(page: str) -> None:
    without = {
        title
        for title, text in sections((ROOT / page).read_text(encoding="utf-8")).items()
        if not REFERENCE.search(text)
    }
    assert without == WITHOUT_CLAIMS.get(page, set())


def test_every_figure_in_a_section_about_money_has_a_reference() -> None:
    prices = sections((ROOT / "docs/prices.md").read_text(encoding="utf-8"))
    operations = sections((ROOT / "docs/operations.md").read_text(encoding="utf-8"))
    assert operations.keys() >= MONEY
    texts = [*prices.values(), *(operations[title] for title in MONEY)]
    assert sum(map(has_figure, (block for text in texts for block in blocks(text)))) > 50
    assert [fault for text in texts for fault in faults_of_figures(text)] == []


def test_missing_and_wrong_references_are_found() -> None:
    held = "<!-- held by tests/docs/test_claims.py::test_missing_and_wrong_references_are_found -->"
    items = f"- `8` of it\n- eight of it\n  {held}\n- 60 seconds"
    page = f"# A\n\nAt most 8.\n{held}\n\n{items}\n\n| a |\n|---|\n| 1 |\n| 2 {held} |\n"
    assert faults_of_figures(sections(page)["A"]) == ["- 60 seconds", "| 1 |"]
    assert (
        fault_of_reference("tests/docs/test_claims.py::test_missing")
        == "tests/docs/test_claims.py::test_missing: no such test"
    )
    assert fault_of_reference("tests/docs/none.py::test_x") == "tests/docs/none.py::test_x: no such test"
    assert fault_of_reference(held.split()[3]) == ""
