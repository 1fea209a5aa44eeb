"""`gateway history`: attach · import-archive · rebuild · copy · refusals · state."""

from __future__ import annotations

import asyncio
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gateway.cli.configuration import configured
from gateway.cli.history_database import existing_database
from gateway.cli.output import note, print_json, print_record, print_rows, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import change, either, run
from gateway.cli.values import PAST
from gateway.config.secret import Secret

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.database.engine import Database
    from gateway.history.copying import Copied

LISTS = {"behind": ("account", "lines"), "blocked": ("account", "reason")}
REFUSALS = ("account", "key", "model", "code", "requests")


@click.group()
def command() -> None:
    """The history in the database: what leaves the store stays there."""


@command.command()
@configured
def attach(settings: Settings, as_json: bool) -> None:
    """Let the store and this database belong together, whatever either of them knew before."""

    async def work(session: StoreSession) -> dict[str, str]:
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
    from gateway.history.rollups import rebuild_rollups

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

    async def work(session: StoreSession) -> Copied:
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
@click.option("--until", type=PAST, metavar="WHEN", help="The end, not included; its hour counts whole. Default now.")
@remotable
def refusals(
    settings: Settings, account: str, key_id: str, since: datetime, until: datetime | None, as_json: bool
) -> None:
    """How many requests were refused, by key, model and error code, most first; of ACCOUNT or of all."""

    def here() -> list[dict[str, Any]]:
        from gateway.history.refusals import RefusalQuery, read_refusals

        keys = [key_id] if key_id else None
        with existing_database(settings) as database:
            found = read_refusals(database, RefusalQuery(since=since, until=until, account=account, keys=keys))
        return [msgspec.to_builtins(one) for one in found]

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        query = {"account": account or None, "key": key_id or None, "since": since.isoformat()}
        query |= {"until": until.isoformat()} if until is not None else {}
        found: list[dict[str, Any]] = (await client.get("refusals", **query))["data"]
        return found

    print_rows(REFUSALS, either(here, there), as_json=as_json)


@command.command()
@remotable
def state(settings: Settings, as_json: bool) -> None:
    """How far the database is behind the store, and which accounts cannot be imported; exit status 1 if any cannot."""

    async def work(session: StoreSession) -> dict[str, Any]:
        from gateway.admin.history_state import all_pages, read_history_state
        from gateway.history.sql_thread import SqlThread

        forms, last = list[dict[str, Any]](), ""
        with existing_database(settings) as database, closing(SqlThread()) as sql:
            while not forms or last:
                found = await read_history_state(session.actor, session.store, database, sql, after=last)
                forms, last = [*forms, found.json_form()], found.last
        return all_pages(forms)

    async def there(client: AdminClient) -> dict[str, Any]:
        from gateway.admin.history_state import all_pages
        from gateway.admin.pages import MOST

        forms, cursor = list[dict[str, Any]](), ""
        while not forms or cursor:
            form = await client.get("history", limit=MOST, **({"cursor": cursor} if cursor else {}))
            cursor = form.pop("next_cursor")
            forms.append(form)
        return all_pages(forms)

    form = either(lambda: run(settings, work), there)
    if as_json:
        print_json(form)
    else:
        print_record({name: value for name, value in form.items() if name not in LISTS}, as_json=False)
        for name, columns in LISTS.items():
            if form[name]:
                click.echo(f"\n{name}:")
                print_table(columns, form[name])
    click.get_current_context().exit(1 if form["blocked"] else 0)


def _open(settings: Settings, target: str) -> Database:
    from gateway.database.address import postgres_address
    from gateway.database.engine import Database

    url = Secret.parse(target, literals=True, folder=settings.folder).reveal()
    return Database.open(postgres_address(url))
