"""docs/operations/log.md explains log lines that exist: each quoted line is still written somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gateway.ledger import AuditReport

ROOT = Path(__file__).parents[2]
LOG = (ROOT / "docs" / "operations" / "log.md").read_text(encoding="utf-8")
AUDIT = (ROOT / "docs" / "operations" / "audit.md").read_text(encoding="utf-8")
SOURCE = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "gateway").rglob("*.py"))


def quoted_lines() -> list[str]:
    """The lines in the first column of the table of log lines."""
    table = LOG.partition("## Log lines")[2]
    return [line for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for line in re.findall(r"`([^`]+)`", row)]


@pytest.mark.holds("operations/log.md#log-lines-1")
def test_every_explained_log_line_is_written_by_the_code() -> None:
    assert len(quoted_lines()) > 20
    for line in quoted_lines():
        # What stands between the variable parts, in the order of the line.
        parts = re.split(r"\b(?:[NP]|PORT|ADDRESS)\b|…|\d+(?:\.\d+)?|FILE|KEY|refused\.jsonl|http://", line)
        for part in filter(None, (part.strip(" :;,") for part in parts)):
            assert part in SOURCE, f"{line!r}: nothing writes {part!r}"


def test_every_rule_of_the_audit_has_a_row_and_no_other() -> None:
    found = re.compile(r'(?:expect|_mismatch)\(\s*f?"(\w+)|Mismatch\(\w+, f?"(\w+)|\(f?"(archive)')
    code = {
        next(filter(None, names))
        for package in ("ledger", "ledger/auditing", "history", "services")
        for path in (ROOT / "gateway" / package).glob("*.py")
        if "auditing" in package or path.name.startswith(("audit", "archive", "ledger_audit"))
        for names in found.findall(path.read_text(encoding="utf-8"))
    }
    [table] = re.findall(r"^\| rule \|.*\n\|[-|]+\n((?:\|.*\n)+)", AUDIT, re.MULTILINE)
    documented = {
        name for row in re.findall(r"^\| (.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", row)
    }
    assert len(code) > 15
    assert documented == code


def test_every_list_of_the_audit_report_is_explained() -> None:
    items = re.findall(r"^- (`[^:]+`):", AUDIT.partition("These are listed and are no mismatches:")[2], re.MULTILINE)
    listed = [name for item in items for name in re.findall(r"`(\w+)`", item)]
    lists = {name for name, value in AuditReport().json_form().items() if isinstance(value, list)}
    assert set(listed) == lists - {"mismatches", "unreachable"}
