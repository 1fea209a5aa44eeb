"""What commands print: one JSON document or a table on stdout, notes on stderr.

Tables have rich's colours on a terminal and plain aligned columns in a pipe. Sharp edge: names come from operators and
may look like rich markup, so every cell is `Text`, never a string.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import click
import msgspec


def print_json(document: Any) -> None:
    """One JSON document, on one line."""
    click.echo(msgspec.json.encode(document).decode())


def note(message: str) -> None:
    """A line for the person at the terminal."""
    click.echo(f"gateway: {message}", err=True)


def print_record(record: Mapping[str, Any], *, as_json: bool) -> None:
    """One thing, a line per field or as a JSON document."""
    if as_json:
        print_json(record)
        return
    width = max(map(len, record), default=0)
    for name, value in record.items():
        click.echo(f"{name.ljust(width)}  {cell(value)}".rstrip())


def print_rows(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    """Several things, as a table of the named columns or as a JSON document."""
    if as_json:
        print_json(rows)
    else:
        print_table(columns, rows)


def print_table(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows of the named columns, under a heading."""
    lines = [[cell(row.get(column)) for column in columns] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, lines)
        return
    widths = [max(map(len, column)) for column in zip(columns, *lines, strict=True)]
    for line in (columns, *lines):
        click.echo("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip())


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows of the named columns as a CSV file."""
    from gateway.admin.csv_file import csv_text

    click.echo(csv_text(columns, rows), nl=False)


def cell(value: Any) -> str:
    """A value as people read it; `-` where there is none."""
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join(f"{name}={cell(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ",".join(cell(item) for item in value)
    return " ".join(str(value).split())  # one line each, whatever a plugin gave as its reason


def _print_rich(columns: Sequence[str], lines: list[list[str]]) -> None:
    # 60 ms to import, and only for people.
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for line in lines:
        table.add_row(*(Text(text) for text in line))
    Console().print(table)
