"""`gateway prices`: the tables of public prices of this installation: renew · list · revert."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from gateway.cli.configuration import configured
from gateway.cli.output import note, print_json, print_rows, print_table
from gateway.cli.root import Failure
from gateway.cli.session import run
from gateway.errors import GatewayError
from gateway.store.fault import StoreSetupError

if TYPE_CHECKING:
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.discovery.discovered import KnownLists
    from gateway.setup.pattern_changes import PatternChange
    from gateway.setup.price_files import PriceFile
    from gateway.setup.price_tables import PriceChange, Rows

COLUMNS = ("name", "change", "old", "new", "models", "large")
TABLE_COLUMNS = ("table", "source", "prices", "newest")
NAMED = 20  # bad rows, large changes and models of patterns that are named; the JSON document has all

yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what changes.")
large_option = click.option("--allow-large", is_flag=True, help="Take prices that change by more than ten times.")


@click.group()
def command() -> None:
    """The tables of public prices of this installation."""


@command.command()
@click.option(
    "--from",
    "file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    required=True,
    metavar="FILE",
    help="A table of the gateway, LiteLLM's model_prices_and_context_window.json, or OpenRouter's list of models.",
)
@yes_option
@dry_run_option
@click.option("--skip-bad", is_flag=True, help="Leave out rows that are wrong, instead of refusing the file.")
@large_option
@configured
def update(
    settings: Settings, file: Path, yes: bool, dry_run: bool, skip_bad: bool, allow_large: bool, as_json: bool
) -> None:
    """Renew the public prices of the vendors in FILE, after showing what changes."""
    from gateway.setup.price_files import MOST_BYTES, read_price_file
    from gateway.setup.price_tables import renewed, rows_of, source_of

    with file.open("rb") as content:
        raw = content.read(MOST_BYTES + 1)  # a device has no end
    found = read_price_file(raw)
    if not found.rows:
        for line in _bad(found):
            note(line)
        raise Failure(f"{file} has no price that the gateway can charge")
    before = rows_of(settings.tables)
    _apply(
        settings,
        before,
        renewed(before, found.rows),
        source=source_of(file, raw),
        found=found,
        refusals=[] if skip_bad else _bad(found),
        allow_large=allow_large,
        asks=not yes,
        dry_run=dry_run,
        as_json=as_json,
    )


@command.command()
@configured
def tables(settings: Settings, as_json: bool) -> None:
    """The tables that a configuration can name, the newest last."""
    from gateway.config.public_tables import is_own_table

    found, newest = settings.tables, settings.tables.names()[-1]
    rows = [
        {
            "table": name,
            "source": "this installation" if is_own_table(name) else "the program",
            "prices": len(found.read(name)),
            "newest": name == newest,
        }
        for name in found.names()
    ]
    print_rows(TABLE_COLUMNS, rows, as_json=as_json)


@command.command()
@click.option(
    "--to", "table", metavar="TABLE", help="The table whose prices come back; default: that before the newest."
)
@yes_option
@dry_run_option
@large_option
@configured
def revert(settings: Settings, table: str | None, yes: bool, dry_run: bool, allow_large: bool, as_json: bool) -> None:
    """Make a new table with the prices of an older one, after showing what changes."""
    from gateway.setup.price_tables import rows_of

    names = settings.tables.names()
    if table is None and len(names) < 2:
        raise Failure("there is no table before the newest one")
    wanted = table or names[-2]
    if wanted not in names:
        raise Failure(f"no price table is named {wanted!r}; there are {', '.join(names)}")
    _apply(
        settings,
        rows_of(settings.tables),
        rows_of(settings.tables, wanted),
        source=f"the table {wanted}",
        found=None,
        refusals=[],
        allow_large=allow_large,
        asks=not yes,
        dry_run=dry_run,
        as_json=as_json,
    )


def _apply(
    settings: Settings,
    before: Rows,
    after: Rows,
    *,
    source: str,
    found: PriceFile | None,
    refusals: list[str],
    allow_large: bool,
    asks: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show what changes, ask, and write the new table."""
    from gateway.setup.price_tables import changes, missing, write_table

    differing = changes(before, after, _used(settings))
    of_patterns = _of_patterns(settings, after) if differing else []
    refusals = [*refusals, *missing(differing), *([] if allow_large else _large(differing))]
    document = {**_document(differing, found, refusals), "pattern_models": list(map(structs.asdict, of_patterns))}
    if not as_json:
        print_table(COLUMNS, map(_row, differing))
    for line in (*_notes(found), *_pattern_lines(of_patterns), *refusals):
        note(line)
    written = ""
    if differing and not refusals and not dry_run:
        if asks:
            click.confirm(f"Apply {_counts(differing)}?", abort=True, err=True)
        newest = settings.tables.newest
        written = write_table(settings.data_dir, after, source=source, now=datetime.now(UTC), newest=newest)
    if as_json:
        print_json({**document, "table": written})
    if refusals:
        raise Failure("the table stays as it is")
    if written:
        note(f"{written} is the newest table: {_counts(differing)}; `gateway reload` lets the gateway use it")
    else:
        note(f"nothing was written: {_counts(differing)}")


def _used(settings: Settings) -> dict[str, list[str]]:
    """The models of the configuration by the names of their public prices."""
    from gateway.config.includes import read_document
    from gateway.setup.price_tables import used_prices

    return used_prices(read_document(Path(settings.file))) if settings.file else {}


def _of_patterns(settings: Settings, after: Rows) -> list[PatternChange]:
    """What changes of the models of patterns; without the store, of those patterns that need no list of a provider."""
    from gateway.discovery.discovered import NO_LISTS
    from gateway.setup.pattern_changes import pattern_changes

    lists: KnownLists = NO_LISTS
    if settings.discovers and (settings.store.url or settings.data_dir.is_dir()):
        try:
            lists = run(settings, _read_lists)
        except (GatewayError, StoreSetupError, OSError, ValueError) as error:
            note(f"the models that providers list are not among those below: {error}")
    return pattern_changes(settings, after, lists)


async def _read_lists(session: StoreSession) -> KnownLists:
    from gateway.discovery.list_reader import read_lists

    return await read_lists(session.store, session.settings, {})


def _pattern_lines(found: Sequence[PatternChange]) -> list[str]:
    lines = [f"{one.model}, of a pattern: {one.change}" for one in found[:NAMED]]
    if len(found) > NAMED:
        lines.append(f"and {len(found) - NAMED:,} more models of patterns")
    return lines


def _bad(found: PriceFile) -> list[str]:
    lines = [f"{name}: {problem}" for name, problem in list(found.bad.items())[:NAMED]]
    if len(found.bad) > NAMED:
        lines.append(f"and {len(found.bad) - NAMED:,} more rows are wrong")
    return [*lines, "leave these rows out with --skip-bad"] if lines else []


def _large(differing: Sequence[PriceChange]) -> list[str]:
    large = [one for one in differing if one.large]
    lines = [f"{one.name}: {one.large}, more than ten times" for one in large[:NAMED]]
    if len(large) > NAMED:
        lines.append(f"and {len(large) - NAMED:,} more prices change by more than ten times")
    return [*lines, "if that is right, say --allow-large"] if lines else []


def _notes(found: PriceFile | None) -> list[str]:
    if found is None or not found.left_out:
        return []
    return ["left out: " + ", ".join(f"{count} ({reason})" for reason, count in sorted(found.left_out.items()))]


def _counts(differing: Sequence[PriceChange]) -> str:
    words = [f"{sum(one.change == word for one in differing)} {word}" for word in ("changed", "added", "removed")]
    return ", ".join(words)


def _row(one: PriceChange) -> dict[str, Any]:
    return {
        "name": one.name,
        "change": one.change,
        "old": _short(one.old),
        "new": _short(one.new),
        "models": list(one.models),
        "large": one.large,
    }


def _short(row: list[dict[str, Any]] | None) -> Any:
    """The price that stands last, without the currency."""
    return {key: value for key, value in row[-1].items() if key != "currency"} if row else None


def _document(differing: Sequence[PriceChange], found: PriceFile | None, refusals: list[str]) -> dict[str, Any]:
    return {
        "form": found.form if found is not None else "table",
        "changes": [_row(one) for one in differing],
        "bad": found.bad if found is not None else {},
        "left_out": found.left_out if found is not None else {},
        "refusals": refusals,
    }
