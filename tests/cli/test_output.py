"""Tables and records for people."""

from __future__ import annotations

import sys

import pytest

from gateway.cli.output import cell, print_json, print_record, print_table

ROWS: list[dict[str, object]] = [{"name": "a", "n": 1}, {"name": "[red]long[/red]", "n": None}]


def test_table_in_a_pipe_has_plain_aligned_columns(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), ROWS)
    assert capsys.readouterr().out.splitlines() == ["name             n", "a                1", "[red]long[/red]  -"]


def test_table_on_a_terminal_takes_no_markup_from_names(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    print_table(("name", "n"), ROWS)
    assert "[red]long[/red]" in capsys.readouterr().out


def test_empty_table_is_its_heading(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name", "n"), [])
    assert capsys.readouterr().out == "name  n\n"


def test_record_has_a_line_per_field(capsys: pytest.CaptureFixture[str]) -> None:
    print_record({"name": "a", "allowed": ["x", "y"]}, as_json=False)
    assert capsys.readouterr().out == "name     a\nallowed  x,y\n"


def test_json_is_one_document_on_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": ["ü"]})
    assert capsys.readouterr().out == '{"a":["ü"]}\n'


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "-"),
        ("", "-"),
        ([], "-"),
        ({}, "-"),
        (0, "0"),
        (True, "yes"),
        ({"a": {"b": 1}}, "a=b=1"),
        ("a\nb", "a b"),
    ],
)
def test_cell_shows_every_value_on_one_line(value: object, text: str) -> None:
    assert cell(value) == text


def test_wide_cell_does_not_pad_the_rows_of_others(capsys: pytest.CaptureFixture[str]) -> None:
    wide = "x" * 100_000
    print_table(("name", "n"), [{"name": "a", "n": 1}, {"name": wide, "n": 2}, {"name": "long", "n": 3}])
    assert capsys.readouterr().out.splitlines() == ["name  n", "a     1", f"{wide}  2", "long  3"]


def test_cell_shows_a_hundred_of_many_items_and_says_how_many_there_are() -> None:
    names = [f"a{number}" for number in range(10_000)]
    assert cell(names).endswith(",a99,(and 9,900 more)")
    assert cell(dict.fromkeys(names, "owner")).endswith(" a99=owner (and 9,900 more)")
    assert cell(names[:100]).endswith(",a99")
