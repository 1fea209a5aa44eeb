"""Public prices that a configuration can refer to by name: `price = "openai/gpt-5-mini"`.

The tables are files of `gateway/config/prices`, each named after the month it was made in by
`conf/prices/generate.py`. A name is looked up in the newest table, or in the one it asks for:
`openai/gpt-5-mini@2026-11` stays what it is when the gateway is upgraded. Sharp edge: they are what vendors
publish, in USD, not what they bill you.
"""

from __future__ import annotations

import re
import tomllib
from decimal import Decimal
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

from gateway.config.toml_reader import suggestion

_MONTH = re.compile(r"\d{4}-\d{2}", re.ASCII)


def public_price(name: str) -> list[dict[str, Any]]:
    """The price tables of that name as TOML has them, in the order of their dates; ValueError when there is none."""
    model, _, table = name.rpartition("@")
    names = table_names()
    if not _MONTH.fullmatch(table):  # some models have an @ in their name
        model, table = name, names[-1]
    if table not in names:
        raise ValueError(f"no price table is named {table!r}{suggestion(table, names)}")
    prices = _read_table(table)
    if model not in prices:
        raise ValueError(f"no public price is named {model!r}{suggestion(model, prices)}")
    found = prices[model]
    return [{"currency": "USD", **price} for price in (found if isinstance(found, list) else [found])]


def table_names() -> list[str]:
    """Every table's name, the newest last."""
    return sorted(file.name.removesuffix(".toml") for file in _folder().iterdir() if file.name.endswith(".toml"))


def _folder() -> Traversable:
    return files("gateway.config") / "prices"


@cache  # the files are part of the program, and reading one takes 40 ms
def _read_table(name: str) -> dict[str, Any]:
    # Decimal, as in a configuration: 0.1 stays what is written.
    return tomllib.loads((_folder() / f"{name}.toml").read_text(encoding="utf-8"), parse_float=Decimal)
