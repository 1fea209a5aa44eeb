"""`gateway history`: attach · import-archive · rebuild · copy · refusals."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from gateway.cli.configuration import configured
from gateway.cli.history_database import existing_database
from gateway.cli.output import note, print_json, print_rows
from gateway.cli.session import Session, change
from gateway.cli.values import PAST
from gateway.config.secret import Secret
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.database.engine import Database
    from gateway.history.copying import Copied

REFUSALS = ("account", "key", "model", "code", "requests")


@click.group()
def command() -> None:
    """The history in the database: what leaves the store stays there."""


@command.command()
@configured
def attach(settings: Settings, as_json: bool) -> None:
    """Let the store and this database belong together, whatever either of them knew before."""

    async def work(session: Session) -> dict[str, str]:
        from gateway.history import binding
        from gateway.history.sql_thread import SqlThread

        with existing_database(settings) as database, closing(SqlThread()) as sql:
            before = await binding.attach(session.store, database, sql)
            return {"database": database.id, "before": before}

    done = change(settings, work)
    if as_json:
        print_json(done)
    note(f"the store has its history in {done['database']} now; before: {done['before'] or 'none'}")


@command.command("import-archive")
@click.argument(
    "files", nargs=-1, required=True, metavar="FILE...", type=click.Path(path_type=Path, exists=True, dir_okay=False)
)
@configured
def import_archive(settings: Settings, files: tuple[Path, ...], as_json: bool) -> None:
    """Add the lines of each archive FILE of an older version, the oldest first."""
    from gateway.history.archive_import import import_archives

    with existing_database(settings) as database:
        done = import_archives(database, files)
    if as_json:
        print_json(done)
    note(f"lines added: {done.lines}, accounts: {done.accounts}")


@command.command()
@configured
def rebuild(settings: Settings, as_json: bool) -> None:
    """Compute the sums of usage again from the lines in the database."""
    from gateway.history.rebuild import rebuild_rollups

    with existing_database(settings) as database:
        lines = rebuild_rollups(database)
    if as_json:
        print_json({"lines": lines})
    note(f"lines summed: {lines}")


@command.command()
@click.option("--to", "target", required=True, metavar="URL", help="postgresql:// address, env:NAME or file:PATH.")
@configured
def copy(settings: Settings, target: str, as_json: bool) -> None:
    """Copy the history into an empty PostgreSQL database, and let the store use that one."""

    async def work(session: Session) -> Copied:
        from gateway.history import binding
        from gateway.history.copying import copy_history
        from gateway.history.exclusive import importers_waiting
        from gateway.history.sql_thread import SqlThread

        with existing_database(settings) as old, closing(_open(settings, target)) as new, closing(SqlThread()) as sql:
            binding.check(await binding.remembered(session.store), old)
            with importers_waiting(old):
                done = await asyncio.to_thread(copy_history, old, new)
                await binding.attach(session.store, new, sql)
        return done

    done = change(settings, work)
    if as_json:
        print_json(done)
    note(f"lines copied: {done.lines}, accounts: {done.accounts}; set database.url to the new database and restart")


@command.command()
@click.argument("account", default="")
@click.option("--key", "key_id", default="", metavar="KEY_ID", help="Only requests with this key.")
@click.option("--since", type=PAST, default="24h", show_default=True, metavar="WHEN", help="From this hour on.")
@configured
def refusals(settings: Settings, account: str, key_id: str, since: datetime, as_json: bool) -> None:
    """How many requests were refused, by key, model and error code, most first; of ACCOUNT or of all."""
    from gateway.history.refusals import read_refusals

    with existing_database(settings) as database:
        found = read_refusals(database, account=account, key_id=key_id, since=since)
    print_rows(REFUSALS, [msgspec.to_builtins(one) for one in found], as_json=as_json)


def _open(settings: Settings, target: str) -> Database:
    from gateway.database.address import postgres_address
    from gateway.database.engine import Database

    url = Secret.parse(target, literals=True, folder=settings.folder).reveal()
    return Database.open(postgres_address(url))
