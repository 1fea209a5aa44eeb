"""docs/operations.md explains log lines that exist: each quoted line is still written somewhere."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOC = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "gateway").rglob("*.py"))


def quoted_lines() -> list[str]:
    """The lines in the first column of the table of log lines."""
    table = DOC.partition("## Log lines")[2]
    return [line for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for line in re.findall(r"`([^`]+)`", row)]


def test_every_explained_log_line_is_written_by_the_code() -> None:
    assert len(quoted_lines()) > 20
    for line in quoted_lines():
        # What stands between the variable parts, in the order of the line.
        parts = re.split(r"\b[NP]\b|…|\d+(?:\.\d+)?|FILE|KEY|refused\.jsonl|http://", line)
        for part in filter(None, (part.strip(" :;,") for part in parts)):
            assert part in SOURCE, f"{line!r}: nothing writes {part!r}"
