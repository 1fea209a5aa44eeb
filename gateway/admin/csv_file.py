"""CSV files for spreadsheets: RFC 4180, UTF-8, a heading.

A file that is sent is made in pieces, in a thread, so that the event loop serves others meanwhile::

    pieces = await csv_pieces(columns, in_pages(rows))
"""

from __future__ import annotations

import asyncio
import csv
import io
import re
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from typing import Any

Row = Mapping[str, Any]

ROWS_AT_ONCE = 500  # in one piece: a few milliseconds of work, some 100 kB
#: A text that a spreadsheet would take for a formula; some take the full-width forms of = + - @ as well.
_FORMULA = re.compile(r"[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")
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
    while page := await asyncio.to_thread(lambda: list(islice(left, ROWS_AT_ONCE))):
        yield page


async def _pieces(columns: Sequence[str], pages: AsyncGenerator[Iterable[Row]]) -> AsyncGenerator[bytes]:
    is_first = True
    async with aclosing(pages):
        async for rows in pages:
            yield (await asyncio.to_thread(_text, columns, rows, heading=is_first)).encode()
            is_first = False
    if is_first:
        yield csv_text(columns, ()).encode()


async def _continued(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    async with aclosing(pieces):
        yield first
        async for piece in pieces:
            yield piece


def _text(columns: Sequence[str], rows: Iterable[Row], *, heading: bool) -> str:
    file = io.StringIO()
    writer = csv.writer(file)
    if heading:
        writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return file.getvalue()


def _cell(value: Any) -> str:
    text = "" if value is None else str(value)
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text
