"""Keys of [server] that have a new name. An old name works for one release and gives a warning.

`with_new_names(table, kind, reader)` returns the table under the new names, and the warnings. It notes a problem under
the old name if the value is wrong, or if a key has its old and its new name in the same table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from gateway.config.toml_reader import TomlReader, dotted, fields_of

SECTION = "server"

#: Old key → new key.
RENAMED: Mapping[str, str] = {"idle_timeout": "keepalive_timeout"}

#: Old switch → the headers that it adds to `response_headers`.
HEADER_SWITCHES: Mapping[str, tuple[str, ...]] = {
    "debug_headers": ("model", "provider", "attempts"),
    "cost_header": ("cost",),
}


def with_new_names(table: object, kind: type[Struct], reader: TomlReader) -> tuple[Any, tuple[str, ...]]:
    """[server] under its new names, and one warning for each old name in it."""
    if not isinstance(table, dict):
        return table, ()
    renamed = {name: value for name, value in table.items() if name not in RENAMED and name not in HEADER_SWITCHES}
    warnings = [*_move_values(table, renamed, kind, reader), *_move_switches(table, renamed, reader)]
    return renamed, tuple(warnings)


def _move_values(table: dict[str, Any], renamed: dict[str, Any], kind: type[Struct], reader: TomlReader) -> list[str]:
    warnings = []
    for old, new in RENAMED.items():
        if old not in table:
            continue
        if new in table:
            reader.problem((SECTION, old), f"the old name of {new}, which is set too; remove {old}")
        elif reader.value(fields_of(kind)[new].type, table[old], (SECTION, old)) is not None:
            renamed[new] = table[old]
            warnings.append(_warning(reader, old, new))
    return warnings


def _move_switches(table: dict[str, Any], renamed: dict[str, Any], reader: TomlReader) -> list[str]:
    warnings = []
    for old, headers in HEADER_SWITCHES.items():
        if old not in table:
            continue
        is_on = reader.value(bool, table[old], (SECTION, old))
        if is_on is None:
            continue
        warnings.append(_warning(reader, old, "response_headers"))
        listed = renamed.setdefault("response_headers", [])
        if is_on and isinstance(listed, list):
            renamed["response_headers"] = [*listed, *(header for header in headers if header not in listed)]
    return warnings


def _warning(reader: TomlReader, old: str, new: str) -> str:
    key = dotted((SECTION, old))
    return f"{reader.file}: {key}: an old name that the next release refuses; use {dotted((SECTION, new))}"
