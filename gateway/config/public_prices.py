"""Public prices that a configuration can refer to by name: `price = "openai/gpt-5-mini"`.

The tables are files of `gateway/config/prices`, each named after the month it was made in by
`conf/prices/generate.py`, and those that `gateway prices update` has added. A name is looked up in the newest table, or
in the one it asks for: `openai/gpt-5-mini@2026-11` stays what it is when the gateway is upgraded or a table is added.
Sharp edge: they are what vendors publish, in USD, not what they bill you.
"""

from __future__ import annotations

from typing import Any

from gateway.config.public_tables import PublicTables, is_table_name
from gateway.config.toml_reader import suggestion

BUILT_IN = PublicTables()


def public_price(name: str, tables: PublicTables = BUILT_IN) -> list[dict[str, Any]]:
    """The price tables of that name as TOML has them, in the order of their dates; ValueError when there is none."""
    model, _, table = name.rpartition("@")
    names = tables.names()
    if not is_table_name(table):  # some models have an @ in their name
        model, table = name, names[-1]
    if table not in names:
        raise ValueError(f"no price table is named {table!r}{suggestion(table, names)}")
    prices = tables.read(table)
    if model not in prices:
        raise ValueError(f"no public price is named {model!r}{suggestion(model, prices)}")
    found = prices[model]
    return [{"currency": "USD", **price} for price in (found if isinstance(found, list) else [found])]


def table_names() -> list[str]:
    """The tables of the program, the newest last."""
    return BUILT_IN.names()
