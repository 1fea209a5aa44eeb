"""Reads a CSV file: a line of column names, then a line per thing. All faults are collected, none stops the reading."""

from __future__ import annotations

import csv
import io
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Any

from msgspec import Struct

from gateway.config.toml_reader import suggestion
from gateway.errors import GatewayError, InvalidValue

LARGEST = 64 << 20  # bytes of a file
MOST_COLUMNS = 100  # more than any import has

Parser = Callable[[str], Any]  # ValueError or a GatewayError for a value that is not possible


class Fault(Struct, frozen=True, order=True):
    """Something wrong in a file; no column for a fault of the whole line, line 0 for one of the whole file."""

    line: int
    column: str
    problem: str


class Row(Struct, frozen=True):
    """A line of the file: the values of the cells that are not empty."""

    line: int
    values: dict[str, Any]

    def get(self, column: str, default: Any = None) -> Any:
        """The value of a cell; the default if it is empty."""
        return self.values.get(column, default)

    def pick(self, *columns: str) -> dict[str, Any]:
        """The values of these columns, without the empty ones."""
        return {column: self.values[column] for column in columns if column in self.values}


class Table:
    """The rows of a file without those that have a fault, and the faults."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rows: list[Row] = []
        self.faults: list[Fault] = []

    def add_fault(self, line: int, column: str, problem: str) -> None:
        """Note a fault."""
        self.faults.append(Fault(line, column, problem))

    def raise_faults(self) -> None:
        """InvalidValue with a line of text for each fault, if there is one."""
        if self.faults:
            raise InvalidValue("\n".join(self._text(fault) for fault in sorted(set(self.faults))))

    def _text(self, fault: Fault) -> str:
        where = f", line {fault.line}" if fault.line else ""
        column = f", column {fault.column}" if fault.column else ""
        return f"{self.name}{where}{column}: {fault.problem}"


def read_table(name: str, content: bytes, columns: Mapping[str, Parser], *, required: Collection[str]) -> Table:
    """Read and check a file of these columns; the caller adds faults of its own, and raises them all."""
    table = Table(name)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content[: error.start].count(b"\n") + 1
        table.add_fault(line, "", "is not UTF-8")
        return table
    if len(content) > LARGEST:
        table.add_fault(0, "", f"is larger than {LARGEST >> 20} MiB")
        return table
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        _read(table, reader, columns, required)
    except csv.Error as error:
        table.add_fault(reader.line_num, "", f"is no CSV: {error}")
    return table


def _read(table: Table, reader: Any, columns: Mapping[str, Parser], required: Collection[str]) -> None:
    header = [name.strip() for name in next(reader, [])]
    if not header:
        table.add_fault(1, "", "the names of the columns are missing")
        return
    if len(header) > MOST_COLUMNS:
        table.add_fault(1, "", f"has {len(header)} columns; at most {MOST_COLUMNS} are possible")
        return
    for name, times in Counter(header).items():
        if name not in columns:
            table.add_fault(1, name or "(empty)", f"there is no such column{suggestion(name, columns)}")
        elif times > 1:
            table.add_fault(1, name, "stands twice")
    for name in required:
        if name not in header:
            table.add_fault(1, name, "is missing")
            return
    line = reader.line_num + 1
    for cells in reader:
        if any(cell.strip() for cell in cells):
            _read_row(table, line, header, cells, columns, required)
        line = reader.line_num + 1


def _read_row(
    table: Table,
    line: int,
    header: list[str],
    cells: list[str],
    columns: Mapping[str, Parser],
    required: Collection[str],
) -> None:
    before = len(table.faults)
    if len(cells) != len(header):
        table.add_fault(line, "", f"has {len(cells)} cells instead of {len(header)}")
        return
    values = {}
    for name, cell in zip(header, map(str.strip, cells), strict=True):
        if not cell:
            if name in required:
                table.add_fault(line, name, "is empty")
        elif name in columns:
            try:
                values[name] = columns[name](cell)
            except ValueError as error:
                table.add_fault(line, name, str(error))
            except GatewayError as error:
                table.add_fault(line, name, error.message)
    if len(table.faults) == before:
        table.rows.append(Row(line, values))
