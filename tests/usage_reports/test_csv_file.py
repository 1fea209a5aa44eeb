"""Cells of CSV files: what a spreadsheet would run is text, and numbers stay numbers."""

from __future__ import annotations

import csv
import io

import pytest

from gateway.reports.csv_file import csv_text


def cell(value: object) -> str:
    """The only cell of a file with this value."""
    [_, [found]] = csv.reader(io.StringIO(csv_text(["note"], [{"note": value}]), newline=""))
    return found


@pytest.mark.holds("security.md#the-console-1")
@pytest.mark.parametrize("first", [*"=+-@\t\r\n", *"\uff1d\uff0b\uff0d\uff20"])
def test_text_that_a_spreadsheet_takes_for_a_formula_gets_an_apostrophe(first: str) -> None:
    assert cell(f"{first}cmd|' /C calc'!A0") == f"'{first}cmd|' /C calc'!A0"


def test_lines_end_in_a_line_feed_so_that_line_tools_read_the_last_cell() -> None:
    assert csv_text(["name", "key"], [{"name": "web", "key": "sk-1"}]) == "name,key\nweb,sk-1\n"


@pytest.mark.parametrize("value", [-1, "-0.5", "12", "a=b", "x\n=1", ""])
def test_numbers_and_other_text_stay_as_they_are(value: object) -> None:
    assert cell(value) == str(value)
