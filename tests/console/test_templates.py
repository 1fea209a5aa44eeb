"""What templates of the console have in common stands in one partial."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from gateway.console import rendering

MOST_ALIKE = 4  # closing lines that two templates may share


def lines_of(file: Path) -> list[str]:
    return [line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


def alike(one: list[str], other: list[str]) -> int:
    """How many lines at the end are the same."""
    pairs = list(zip(reversed(one), reversed(other), strict=False))
    return next((number for number, (left, right) in enumerate(pairs) if left != right), len(pairs))


def test_no_two_templates_end_in_the_same_lines() -> None:
    templates = {file.name: lines_of(file) for file in Path(rendering.__file__).parent.glob("templates/*.html")}
    assert len(templates) > 50
    found = [(a, b) for a, b in combinations(templates, 2) if alike(templates[a], templates[b]) > MOST_ALIKE]
    assert found == []
