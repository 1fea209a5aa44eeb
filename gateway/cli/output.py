"""What commands print: one JSON document or a table on stdout, notes on stderr.

Tables have rich's colours on a terminal and plain aligned columns in a pipe. Sharp edge: names come from operators and
may look like rich markup, so every cell is `Text`, never a string.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Self

import click
import msgspec

LINES_AT_ONCE = 500  # of a table that are written at once: each write to a pipe takes as long as ten lines
WIDEST = 100  # characters of a cell that the other rows are padded to
SHOWN_AFTER = 1.0  # seconds that work takes before its progress is shown
SHOWN_EVERY = 0.5  # seconds
ERASED = "\r\x1b[K"  # to the begin of the line, and without the rest of it
MOST_ITEMS = 100  # of a list or mapping in one cell: a person may be in 10,000 accounts


def print_json(document: Any) -> None:
    """One JSON document, on one line."""
    click.echo(msgspec.json.encode(document).decode())


def note(message: str) -> None:
    """A line for the person at the terminal."""
    click.echo(f"gateway: {message}", err=True)


class Progress:
    """Shows on a terminal how far work is, and the time that is left, in one line on stderr; nothing in a pipe.

    ::

        gateway: accounts audited: 12,400 of 100,000, about 1 min 20 s left

    It is the context of the work: the line is gone at its end, so a message does not follow it in the same line.
    """

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._line = False  # there is one
        self._work = ""
        self._begun = self._next = 0.0  # monotonic seconds
        self._first = 0  # that were done when the work began

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._erase()

    def __call__(self, work: str, done: int, total: int) -> None:
        """So many of `total` are done."""
        if not self._shown:
            return
        moment = time.monotonic()
        if work != self._work:
            self._work, self._first = work, done
            self._begun, self._next = moment, moment + SHOWN_AFTER
        if done >= total:
            self._erase()
        elif moment >= self._next:
            self._next = moment + SHOWN_EVERY
            text = f"gateway: {work}: {done:,} of {total:,}"
            if done > self._first:
                left = (moment - self._begun) / (done - self._first) * (total - done)
                text += f", about {duration_text(left)} left"
            self._line = True
            click.echo(f"{ERASED}{text}", err=True, nl=False)

    def _erase(self) -> None:
        if self._line:
            click.echo(ERASED, err=True, nl=False)
        self._line, self._work = False, ""


def duration_text(seconds: float) -> str:
    """As people say it: `40 s`, `2 min 5 s`, `1 h 20 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if not minutes:
        return f"{rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


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
    widths = [_width(column) for column in zip(columns, *lines, strict=True)]
    texts = ("  ".join(map(str.ljust, line, widths)).rstrip() for line in (columns, *lines))
    while some := list(islice(texts, LINES_AT_ONCE)):
        click.echo("\n".join(some))


def _width(texts: Iterable[str]) -> int:
    """The width of a column. Wider texts than `WIDEST` move the rest of their row, and do not pad all other rows."""
    return max((len(text) for text in texts if len(text) <= WIDEST), default=WIDEST)


def print_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]]) -> None:
    """Rows of the named columns as a CSV file."""
    from gateway.reports.csv_file import csv_text

    click.echo(csv_text(columns, rows), nl=False)


def cell(value: Any) -> str:
    """A value as people read it; `-` where there is none."""
    if type(value) is str and value.isprintable() and " " not in value:  # most cells are
        return value or "-"
    if value is None or value == "" or value == [] or value == {}:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, dict):
        return " ".join([f"{name}={cell(item)}" for name, item in islice(value.items(), MOST_ITEMS)] + _more(value))
    if isinstance(value, (list, tuple)):
        return ",".join([cell(item) for item in value[:MOST_ITEMS]] + _more(value))
    return " ".join(str(value).split())  # one line each, whatever a plugin gave as its reason


def _more(items: Collection[Any]) -> list[str]:
    """How many items are not shown. The JSON document has them all."""
    return [f"(and {len(items) - MOST_ITEMS:,} more)"] if len(items) > MOST_ITEMS else []


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
