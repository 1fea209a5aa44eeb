"""The tables of public prices: those of the program, and those that `gateway prices update` has put into data_dir.

A table has the name of its month or day, and a number if a day has several; the newest is the last one. A table is
never changed once it is there. So the name of the newest table at the time a configuration was read says all of its
prices, whatever is added later.
"""

from __future__ import annotations

import os
import re
import tomllib
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gateway.config.regular_files import read_regular

FOLDER: Final = "prices"  # in data_dir
TABLE_NAME: Final = re.compile(r"\d{4}-\d{2}(-\d{2}(\.[1-9]\d?)?)?", re.ASCII)
SUFFIX: Final = ".toml"


class UnreadableTable(ValueError):
    """A table of this installation cannot be read; the prices of another one would be wrong."""


class PublicTables(Struct, frozen=True):
    """The tables that a configuration can name; `newest` leaves out later ones."""

    folder: str = ""  # of the tables of this installation; empty: those of the program alone
    newest: str = ""
    draft: dict[str, Any] | None = None  # rows that are to replace those of the newest table, and are in no file yet

    @classmethod
    def of(cls, data_dir: Path | None, newest: str = "") -> PublicTables:
        """Those of a data directory, up to the one that is the newest now, or to `newest`. UnreadableTable."""
        tables = cls(str(data_dir / FOLDER) if data_dir is not None else "", newest)
        found = tables.names()[-1]
        if is_own_table(newest) and found != newest:
            raise UnreadableTable(f"the price table {newest} is no longer in {tables.folder}")
        return cls(tables.folder, found)

    def names(self) -> list[str]:
        """Every table's name, the newest last. UnreadableTable."""
        found = {*_names(_built_in()), *(_own_names(Path(self.folder)) if self.folder else ())}
        return sorted((name for name in found if not self.newest or _order(name) <= _order(self.newest)), key=_order)

    def read(self, name: str = "") -> dict[str, Any]:
        """The prices of a table by name, by default of the newest; decimals are exact. UnreadableTable."""
        name = name or self.newest or self.names()[-1]
        if self.draft is not None and name == self.names()[-1]:
            return self.draft
        if not is_own_table(name):
            return _read_built_in(name)
        own = Path(self.folder) / f"{name}{SUFFIX}"
        try:
            return _read_own(own, own.stat().st_mtime_ns)
        except (OSError, ValueError, ArithmeticError, RecursionError) as error:
            raise UnreadableTable(f"the price table {own} cannot be read: {_cause(error)}") from None


def is_table_name(text: str) -> bool:
    """Whether a text is the name of a table."""
    return TABLE_NAME.fullmatch(text) is not None


def is_own_table(name: str) -> bool:
    """Whether a table was added to this installation: it has the name of a day, those of the program of a month."""
    return len(name) > len("2026-11")


def _order(name: str) -> tuple[bool, str, int]:
    """Tables of the installation come after those of the program, so that an upgrade changes no price of theirs."""
    day, _, number = name.partition(".")
    return is_own_table(name), day, int(number or 0)


def _names(folder: Traversable) -> list[str]:
    names = [file.name.removesuffix(SUFFIX) for file in folder.iterdir() if file.name.endswith(SUFFIX)]
    return [name for name in names if is_table_name(name)]


def _own_names(folder: Path) -> list[str]:
    try:
        return [name for name in _names(folder) if is_own_table(name)]
    except FileNotFoundError:  # no table was added
        return []
    except OSError as error:
        if not os.access(folder.parent, os.X_OK):
            return []  # a person's command beside a data directory that only the gateway may read
        raise UnreadableTable(f"the price tables of {folder} cannot be read: {_cause(error)}") from None


def _cause(error: BaseException) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error) or type(error).__name__


def _built_in() -> Traversable:
    return files("gateway.config") / "prices"


@lru_cache(maxsize=4)  # a file does not change, and reading one takes 40 ms
def _read_own(file: Path, changed: int) -> dict[str, Any]:
    return _parsed(read_regular(file).decode())


@lru_cache(maxsize=4)
def _read_built_in(name: str) -> dict[str, Any]:
    return _parsed((_built_in() / f"{name}{SUFFIX}").read_text(encoding="utf-8"))


def _parsed(text: str) -> dict[str, Any]:
    # Decimal, as in a configuration: 0.1 stays what is written.
    return tomllib.loads(text, parse_float=Decimal)
