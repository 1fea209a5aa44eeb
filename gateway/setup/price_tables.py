"""A new table of public prices beside the present one: what differs, what the configuration needs, and its file.

A file renews the vendors that it has prices of; the prices of all other vendors stay. The new table gets the name of
the day. No table is changed or removed, so a table can be taken back by another one with the content of an older one.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from gateway.config.public_tables import FOLDER, SUFFIX, PublicTables, is_own_table, is_table_name
from gateway.errors import InvalidValue
from gateway.setup.price_files import Row
from gateway.setup.toml_text import inline_value

LARGE: Final = 10  # times by which an amount may change
Rows = Mapping[str, Row]


class PriceChange(Struct, frozen=True, kw_only=True):
    """What a new table changes of one price; no row before or after: it is added or removed."""

    name: str
    change: str  # "changed", "added" or "removed"
    old: Row | None = None
    new: Row | None = None
    large: str = ""  # the first amount that changes by more than `LARGE` times
    models: tuple[str, ...] = ()  # of the configuration, whose price it is


def rows_of(tables: PublicTables, name: str = "") -> dict[str, Row]:
    """The rows of a table."""
    return {key: row if isinstance(row, list) else [row] for key, row in tables.read(name).items()}


def renewed(before: Rows, rows: Rows) -> dict[str, Row]:
    """The rows of `before`, where those of the vendors in `rows` are replaced."""
    vendors = {_vendor(name) for name in rows}
    kept = {name: row for name, row in before.items() if _vendor(name) not in vendors}
    return dict(sorted({**kept, **rows}.items()))


def changes(before: Rows, after: Rows, used: Mapping[str, Iterable[str]]) -> list[PriceChange]:
    """What differs, by name; `used`: the models of the configuration by the name of their price."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if old is not None and new is not None and _plain(old) == _plain(new):
            continue
        word = "added" if old is None else "removed" if new is None else "changed"
        large = _large(old, new) if old is not None and new is not None else ""
        models = tuple(used.get(name, ()))
        found.append(PriceChange(name=name, change=word, old=old, new=new, large=large, models=models))
    return found


def used_prices(document: Mapping[str, Any]) -> dict[str, list[str]]:
    """The models of a configuration by the public prices whose newest version they use."""
    found: dict[str, list[str]] = {}
    models = document.get("models", {})
    for model, table in models.items() if isinstance(models, dict) else ():
        for name in _price_names(table):
            if not is_table_name(name.rpartition("@")[2]):
                found.setdefault(name, []).append(model)
    return found


def missing(found: Iterable[PriceChange]) -> list[str]:
    """A line for each price that the new table lacks and the configuration uses; a reload would fail."""
    removed = (one for one in found if one.change == "removed" and one.models)
    return [f"{one.name} is not in the new table, and is the price of {', '.join(one.models)}" for one in removed]


def write_table(data_dir: Path, rows: Rows, *, source: str, now: datetime, newest: str = "") -> str:
    """Write a new table, whole or not at all; its name. InvalidValue if the newest table is of a later day.

    `newest`: the table that the rows were compared with; InvalidValue if another one is the newest by now.
    """
    folder = data_dir / FOLDER
    present = PublicTables.of(data_dir).newest
    if newest and present != newest:
        raise _written_meanwhile(present)
    name = _next_name(present, now.astimezone(UTC).date())
    data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not folder.exists():
        folder.mkdir(exist_ok=True)
        folder.chmod(0o755)  # as the mode of a table
    text = "".join(_lines(rows, source, now))
    draft = folder / f".{name}.{secrets.token_hex(4)}"
    try:
        with draft.open("x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fchmod(file.fileno(), 0o644)  # public, and read by the user of the gateway, whoever runs the command
            os.fsync(file.fileno())
        os.link(draft, folder / f"{name}{SUFFIX}")
    except FileExistsError:
        raise _written_meanwhile(name) from None
    finally:
        draft.unlink(missing_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return name


def _written_meanwhile(name: str) -> InvalidValue:
    return InvalidValue(f"another command has written {name} meanwhile: look at the changes against that table")


def source_of(file: Path, raw: bytes) -> str:
    """How a table names the file it was made of: without its folder."""
    shown = "".join(character if character.isprintable() else "?" for character in file.name)
    return f"{shown}, sha256 {hashlib.sha256(raw).hexdigest()}"


def _next_name(newest: str, today: date) -> str:
    if not is_own_table(newest):
        return today.isoformat()
    day, _, number = newest.partition(".")
    if day > today.isoformat():
        raise InvalidValue(f"the newest table is {newest}, of a later day than today: set the clock of this machine")
    if day < today.isoformat():
        return today.isoformat()
    name = f"{day}.{int(number or 1) + 1}"
    if not is_table_name(name):
        raise InvalidValue(f"a day has at most 99 tables, and {newest} is the last one")
    return name


def _lines(rows: Rows, source: str, now: datetime) -> Iterator[str]:
    yield f"# Public prices of model providers in USD, as of {now.date().isoformat()}; made by `gateway prices`.\n"
    yield f"# Source: {source}\n"
    yield "# Do not edit: a configuration may rely on it.\n\n"
    for name, row in rows.items():
        shown = [{key: value for key, value in table.items() if key != "currency"} for table in row]
        yield f"{inline_value(name)} = {inline_value(shown[0] if len(shown) == 1 else shown)}\n"


def _vendor(name: str) -> str:
    return name.partition("/")[0]


def _price_names(table: object) -> Iterator[str]:
    """The texts of `price` and `cost`, in a model and in its targets."""
    if not isinstance(table, dict):
        return
    for key in ("price", "cost"):
        if isinstance(table.get(key), str) and "/" in table[key] and "*" not in table[key]:
            yield table[key]
    targets = table.get("targets")
    for target in targets if isinstance(targets, list) else ():
        yield from _price_names(target)


# Comparison ----------------------------------------------------------------------------------------------------------


def _plain(value: Any) -> Any:
    """The value without what says nothing: decimals of equal size are equal, and USD is the only currency."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items() if key != "currency"}
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool):
        return Decimal(value)
    return str(value)


def _large(old: Row, new: Row) -> str:
    """The first amount that changes by too much, on any day from today on and for a prompt of any length."""
    today = datetime.now(UTC).date().isoformat()
    starts = {str(table.get("effective_from", "")) for table in (*old, *new)}
    for day in (today, *sorted(start for start in starts if start > today)):
        before, after = _on(old, day), _on(new, day)
        for tokens in sorted({0, *_bounds(before), *_bounds(after)}):
            if text := _large_amount(_of_prompt(before, tokens), _of_prompt(after, tokens)):
                of_prompt = f" above {tokens} tokens" if tokens else ""
                return f"{text}{of_prompt}{f' from {day} on' if day > today else ''}"
    return ""


def _large_amount(before: Mapping[str, Decimal], after: Mapping[str, Decimal]) -> str:
    for name in sorted(before.keys() | after.keys()):
        # A service tier that is not named costs what the others cost.
        usual = Decimal(1) if name.startswith("service_tier_multiplier.") else None
        amount, other = before.get(name, usual), after.get(name, usual)
        if amount is None or (other is None and not _is_free_if_absent(name)):
            continue
        other = other or Decimal()
        if amount and (not other or other > amount * LARGE or amount > other * LARGE):
            return f"{name} from {amount:f} to {other:f}"
    for name in ("input", "output"):
        if bool(before.get(name)) != bool(after.get(name)):
            return f"{name} from {before.get(name, Decimal()):f} to {after.get(name, Decimal()):f}"
    return ""


def _is_free_if_absent(name: str) -> bool:
    """Whether nothing else is charged in its place. Lists of other projects do not tell searches of the web."""
    return name.startswith("per_") and name != "per_web_search"


def _on(row: Row, day: str) -> dict[str, Any]:
    """The price that holds on a day."""
    held = [table for table in row if str(table.get("effective_from", "")) <= day]
    return (held or row[:1])[-1]


def _bounds(price: Mapping[str, Any]) -> list[int]:
    return [int(tier["above_input_tokens"]) for tier in price.get("tiers", ())]


def _of_prompt(price: Mapping[str, Any], tokens: int) -> dict[str, Decimal]:
    """The amounts for a prompt of more than so many tokens."""
    found = dict(_amounts({key: value for key, value in price.items() if key != "tiers"}, ""))
    for tier in price.get("tiers", ()):
        if tokens and int(tier["above_input_tokens"]) <= tokens:
            found |= _amounts({key: value for key, value in tier.items() if key != "above_input_tokens"}, "")
    return found


def _amounts(value: Mapping[str, Any], place: str) -> Iterator[tuple[str, Decimal]]:
    """Every amount with its key; an amount may be a text."""
    for key, item in value.items():
        if key in ("currency", "effective_from"):
            continue
        if isinstance(item, dict):
            yield from _amounts(item, f"{place}{key}.")
        elif isinstance(item, (int, Decimal, str)) and not isinstance(item, bool):
            yield f"{place}{key}", Decimal(item)
