"""`LOG.md` and the tests of this folder name each other."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
LOG = (HERE / "LOG.md").read_text(encoding="utf-8")
ROWS = [line for line in LOG.splitlines() if re.match(r"\| \d+ \|", line)]
TESTS = {path.stem: path.read_text(encoding="utf-8") for path in HERE.glob("test_*.py") if path.stem != "test_log"}
ADDRESS = r"https://github\.com/[\w.-]+/[\w.-]+/(?:issues|pull)/\d+"


def test_each_test_that_the_log_names_exists() -> None:
    module, missing = "", []
    for row in ROWS:
        for name in re.findall(r"`((?:test_\w+::)?test_\w+)`", row):
            module, _, function = name.rpartition("::") if "::" in name else (module, "", name)
            if f"def {function}(" not in TESTS[module]:
                missing.append(name)
    assert missing == []


def test_each_address_of_a_case_is_in_the_log_and_back() -> None:
    told = {address for row in ROWS for address in re.findall(ADDRESS, row)}
    assert {address for text in TESTS.values() for address in re.findall(ADDRESS, text)} == told


def test_at_most_half_of_the_situations_were_right_at_once() -> None:
    right = sum("| right at once |" in row for row in ROWS)
    assert f"{len(ROWS)} situations: {right} right at once, {len(ROWS) - right} mended." in LOG
    assert len(ROWS) >= 20 and 2 * right <= len(ROWS)
