"""docs/claims.md, made from the pages and the tests: `python -m tests.claims` writes it again.

A claim of a page has an id, in a comment that a rendered page does not show: `<!-- claim: ID -->`. It stands at the end
of a paragraph, of an item of a list or of a row of a table, and moves with it. A test names the claims that it holds:
`@pytest.mark.holds("prices.md#what-is-held-1")`. The mark may also stand at a class, or in the `pytestmark` of a module
whose tests all hold the claim.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "claims.md"
CLAIM = re.compile(r"<!-- claim: ([a-z0-9-]+) -->")
WORDS = 12  # of a claim that docs/claims.md shows
ABOVE = "(what the section says above it)"
HEAD = """# Claims and the tests that hold them

`python -m tests.claims` makes this page from the other pages and from the marks of the tests. Each claim is shown with
its id in the source of the page, its first words, and the tests that hold it.
"""


class Claim(NamedTuple):
    """A claim of a page."""

    name: str  # PAGE#ID, as a mark names it
    section: str
    words: str

    @property
    def page(self) -> str:
        """The page, as `page_name` gives it."""
        return self.name.partition("#")[0]


class Mark(NamedTuple):
    """One claim that one test holds."""

    claim: str  # PAGE#ID
    file: str
    test: str  # with its class, if it has one
    passes: bool  # whether it may pass: it is neither skipped nor expected to fail


def page_files() -> list[Path]:
    """The README and the pages of docs/, except the one that is made here."""
    return [ROOT / "README.md", *sorted(path for path in (ROOT / "docs").rglob("*.md") if path != PAGE)]


def page_name(path: Path) -> str:
    """The name of a page in marks: its place in docs/, or README.md."""
    docs = ROOT / "docs"
    return path.relative_to(docs if docs in path.parents else ROOT).as_posix()


def sections(text: str) -> list[tuple[str, str]]:
    """Each heading with the text below it, without blocks of code."""
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    parts = re.split(r"^#+ (.*)$", prose, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))


def blocks(section: str) -> Iterator[str]:
    """The paragraphs, the items of lists and the rows of tables."""
    for part in re.split(r"\n(?:\s*\n)+|\n(?=- )", section.strip()):
        if part.startswith("|"):
            yield from part.splitlines()[2:]
        else:
            yield part


def claims_of(name: str, text: str) -> Iterator[Claim]:
    """The claims of a page with this name and text, in their order."""
    for title, section in sections(text):
        for block in blocks(section):
            told, *rest = CLAIM.split(block)
            for one, after in zip(rest[::2], rest[1::2], strict=True):
                yield Claim(f"{name}#{one}", title, _first_words(told) or ABOVE)
                told = after


def all_claims() -> list[Claim]:
    """The claims of all pages."""
    return [claim for path in page_files() for claim in claims_of(page_name(path), path.read_text(encoding="utf-8"))]


@cache
def all_marks() -> tuple[list[Mark], list[str]]:
    """The marks of all tests, and the places of marks that are not those of a test or do not say a name."""
    marks: list[Mark] = []
    faults: list[str] = []
    for path in sorted((ROOT / "tests").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        if ".mark.holds" in source:
            found, wrong = marks_of(path.relative_to(ROOT).as_posix(), source)
            marks += found
            faults += wrong
    return marks, faults


def marks_of(file: str, source: str) -> tuple[list[Mark], list[str]]:
    """The marks of one file, and the places of those that are not those of a test or do not say a name."""
    tree = ast.parse(source)
    marks: list[Mark] = []
    read: set[int] = set()
    for test, expressions in _tests(tree.body, "", ()):
        passes = not any(re.search(r"mark\.(xfail|skip)\b", ast.unparse(one)) for one in expressions)
        for call in filter(_is_holds, expressions):
            assert isinstance(call, ast.Call)
            names = [one.value for one in call.args if isinstance(one, ast.Constant) and isinstance(one.value, str)]
            if names and len(names) == len(call.args) and not call.keywords:
                read.add(id(call.func))
                marks += [Mark(name, file, test, passes) for name in names]
    written = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "holds"]
    unread = [node for node in written if id(node) not in read and ast.unparse(node.value).endswith("mark")]
    return marks, [f"{file}:{node.lineno}" for node in unread]


def _is_holds(expression: ast.expr) -> bool:
    return isinstance(expression, ast.Call) and ast.unparse(expression.func) == "pytest.mark.holds"


def _tests(
    body: Iterable[ast.stmt], within: str, around: tuple[ast.expr, ...]
) -> Iterator[tuple[str, tuple[ast.expr, ...]]]:
    """The tests of a module or class, each with its marks and those of what is around it."""
    body = list(body)
    for node in body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark":
            around += tuple(node.value.elts) if isinstance(node.value, ast.List | ast.Tuple) else (node.value,)
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield from _tests(node.body, f"{within}{node.name}::", (*around, *node.decorator_list))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield f"{within}{node.name}", (*around, *node.decorator_list)


def page() -> str:
    """The whole page."""
    tests: dict[str, list[Mark]] = {}
    for mark in all_marks()[0]:
        tests.setdefault(mark.claim, []).append(mark)
    parts = [HEAD]
    for name, on_page in groupby(all_claims(), lambda claim: claim.page):
        address = f"../{name}" if name == "README.md" else name
        parts.append(f"## [{name}]({address})\n")
        for title, in_section in groupby(on_page, lambda claim: claim.section):
            parts.append(f"### [{title}]({address}#{anchor(title)})\n")
            parts.append("".join(_entry(claim, tests.get(claim.name, [])) for claim in in_section))
    return "\n".join(parts)


def anchor(title: str) -> str:
    """The address of a heading on its page."""
    return re.sub(r"[^\w\- ]", "", re.sub(r"\]\([^)]*\)", "", title).lower()).replace(" ", "-")


def _entry(claim: Claim, marks: list[Mark]) -> str:
    lines = [f"- `{claim.name.partition('#')[2]}`: {claim.words}\n"]
    for file, of_file in groupby(marks, lambda mark: mark.file):
        lines += [f"  - {file}: {', '.join(f'`{mark.test}`' for mark in of_file)}\n"]
    return "".join(lines)


def _first_words(told: str) -> str:
    """The first words of a claim without their Markdown."""
    row = " – ".join(cell.strip() for cell in told.strip().strip("|").split(" | ")) if told.startswith("|") else told
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)|\*\*|[`|]", r"\1", row.removeprefix("- ")).split()
    return " ".join(words[:WORDS]) + (" …" if len(words) > WORDS else "")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
