"""The tables of public prices: those of the program, and those that `gateway prices update` has put into data_dir.

A table has the name of its month or day, and a number if a day has several; the newest is the last one. A table is
never changed once it is there. So the name of the newest table at the time a configuration was read says all of its
prices, whatever is added later.
"""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from functools import lru_cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

FOLDER: Final = "prices"  # in data_dir
TABLE_NAME: Final = re.compile(r"\d{4}-\d{2}(-\d{2}(\.[1-9]\d?)?)?", re.ASCII)
SUFFIX: Final = ".toml"


class PublicTables(Struct, frozen=True):
    """The tables that a configuration can name; `newest` leaves out later ones."""

    folder: str = ""  # of the tables of this installation; empty: those of the program alone
    newest: str = ""

    @classmethod
    def of(cls, data_dir: Path | None, newest: str = "") -> PublicTables:
        """Those of a data directory, up to the one that is the newest now, or to `newest`."""
        tables = cls(str(data_dir / FOLDER) if data_dir is not None else "", newest)
        return cls(tables.folder, tables.names()[-1])

    def names(self) -> list[str]:
        """Every table's name, the newest last."""
        found = {*_names(_built_in()), *(_names(Path(self.folder)) if self.folder else ())}
        return sorted((name for name in found if not self.newest or _order(name) <= _order(self.newest)), key=_order)

    def read(self, name: str = "") -> dict[str, Any]:
        """The prices of a table by name, by default of the newest; decimals are exact."""
        name = name or self.newest or self.names()[-1]
        own = Path(self.folder) / f"{name}{SUFFIX}" if self.folder else None
        if own is not None and own.is_file():
            return _read_own(own, own.stat().st_mtime_ns)
        return _read_built_in(name)


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
    try:
        names = [file.name.removesuffix(SUFFIX) for file in folder.iterdir() if file.name.endswith(SUFFIX)]
    except OSError:  # no table was added
        return []
    return [name for name in names if is_table_name(name)]


def _built_in() -> Traversable:
    return files("gateway.config") / "prices"


@lru_cache(maxsize=4)  # a file does not change, and reading one takes 40 ms
def _read_own(file: Path, changed: int) -> dict[str, Any]:
    return _parsed(file.read_text(encoding="utf-8"))


@lru_cache(maxsize=4)
def _read_built_in(name: str) -> dict[str, Any]:
    return _parsed((_built_in() / f"{name}{SUFFIX}").read_text(encoding="utf-8"))


def _parsed(text: str) -> dict[str, Any]:
    # Decimal, as in a configuration: 0.1 stays what is written.
    return tomllib.loads(text, parse_float=Decimal)
