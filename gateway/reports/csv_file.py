"""CSV files for spreadsheets and line tools: UTF-8, a heading, lines that end in a line feed alone.

A file that is sent is made in pieces, in a thread, so that the event loop serves others meanwhile::

    pieces = await csv_pieces(columns, in_pages(rows))
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any, TextIO

from gateway.web.work_threads import LONG

Row = Mapping[str, Any]

ROWS_AT_ONCE = 500  # in one piece: a few milliseconds of work, some 100 kB
#: A text that a spreadsheet would take for a formula; some take the full-width forms of = + - @ as well.
_FORMULA = frozenset("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20")
_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?", re.ASCII)


def csv_text(columns: Sequence[str], rows: Iterable[Row]) -> str:
    """The file. A text that looks like a formula gets an apostrophe before it; an absent value is empty."""
    return _text(columns, rows, heading=True)


async def csv_pieces(columns: Sequence[str], pages: AsyncGenerator[Iterable[Row]]) -> AsyncGenerator[bytes]:
    """The same file in pieces, one for each page of rows. A piece is made when it is asked for.

    The first piece is made at once: an error of the first page is raised here, before anything is sent.
    """
    pieces = _pieces(columns, pages)
    return _continued(await anext(pieces), pieces)


async def in_pages(rows: Iterable[Row]) -> AsyncGenerator[list[Row]]:
    """Pages of rows that need no waiting; they are iterated over in a thread."""
    left = iter(rows)
    while page := await LONG.run(lambda: list(islice(left, ROWS_AT_ONCE))):
        yield page


async def _pieces(columns: Sequence[str], pages: AsyncGenerator[Iterable[Row]]) -> AsyncGenerator[bytes]:
    is_first = True
    async with aclosing(pages):
        async for rows in pages:
            yield (await LONG.run(_text, columns, rows, heading=is_first)).encode()
            is_first = False
    if is_first:
        yield csv_text(columns, ()).encode()


async def _continued(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


class RowWriter:
    """Writes rows of texts to a file; each line ends in a line feed.

    The lines that csv makes end in CR LF: before Python 3.13 it quotes a carriage return only if the line end has one,
    and readers take one that is not quoted for the end of the line.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._csv = csv.writer(self, lineterminator="\r\n")

    def row(self, cells: Iterable[str]) -> None:
        """Write one row."""
        self._csv.writerow(cells)

    def write(self, line: str) -> None:
        """Take a line that csv made."""
        self._file.write(line.removesuffix("\r\n") + "\n")


def _text(columns: Sequence[str], rows: Iterable[Row], *, heading: bool) -> str:
    file = io.StringIO()
    writer = RowWriter(file)
    if heading:
        writer.row(columns)
    for row in rows:
        writer.row([_cell(value) if type(value) is not int else str(value) for value in map(row.get, columns)])
    return file.getvalue()


def _cell(value: Any) -> str:
    text = value if type(value) is str else "" if value is None else str(value)
    return f"'{text}" if text[:1] in _FORMULA and not _NUMBER.fullmatch(text) else text
