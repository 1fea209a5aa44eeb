"""`gateway restore`: a backup put in place."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.configuration import configured
from gateway.cli.output import Progress, note, print_json, print_record, print_table
from gateway.cli.root import Failure
from gateway.runtime.pid_file import running_pid

if TYPE_CHECKING:
    from gateway.backup.restore import Restored
    from gateway.config.settings import Settings

SUMS = ("deployment", "begun", "accounts", "keys", "lines", "history_lines", "journals", "pepper", "replaced")
# What is printed of each list of what is undone: its title, and the columns.
TABLES = {
    "revived": ("Open again, although closed after the backup", ("kind", "id", "account")),
    "lost": ("Ledger lines of after the backup", ("account", "lines", "amount")),
    "lost_credits": ("Of these, credits, debits and refunds", ("account", "kind", "id", "amount", "at")),
    "changes": ("Changes of after the backup", ("at", "actor", "action", "object", "account")),
}


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path, exists=True, file_okay=False))
@click.option("--force", is_flag=True, help="Replace the store, the database and the journals that are there.")
@click.option("--keep-database", is_flag=True, help="Restore the store and the journals only.")
@configured
@click.pass_context
def command(
    ctx: click.Context, settings: Settings, folder: Path, force: bool, keep_database: bool, as_json: bool
) -> None:
    """Put the backup in DIR in place; list what is open again and what is lost; audit the result."""
    from gateway.backup.restore import Restore

    if pid := running_pid(settings.data_dir):
        raise Failure(f"the gateway runs (process {pid}): stop it first, on every machine")
    with Progress() as progress:
        work = Restore(settings, folder, force=force, keep_database=keep_database, progress=progress)
        done = asyncio.run(work.run())
    form = done.json_form()
    if as_json:
        print_json(form)
    else:
        print_record({name: form[name] for name in SUMS}, as_json=False)
        _print_tables(form["undone"])
    _note(done, keep_database=keep_database)
    ctx.exit(0 if done.audit.clean else 1)


def _print_tables(undone: dict[str, Any]) -> None:
    for name, (title, columns) in TABLES.items():
        if undone[name]:
            click.echo(f"\n{title}:")
            print_table(columns, undone[name])


def _note(done: Restored, *, keep_database: bool) -> None:
    undone = done.undone
    if undone.revived:
        note(f"open again, although closed after the backup: {len(undone.revived)}; close them before you serve")
    if undone.accounts:
        note(f"accounts of after the backup that are gone: {', '.join(undone.accounts)}")
    if not done.pepper:
        note("the pepper of the store's keys is missing: no key works until it is in its place")
    if keep_database:
        note("the importer sets lines aside that the store has lost; then see `gateway superseded list`")
    if done.audit.superseded_lines:
        note(f"superseded lines: {done.audit.superseded_lines}; see `gateway superseded list`")
    for mismatch in done.audit.mismatches:
        note(f"audit: {mismatch.account}: {mismatch.rule}: expected {mismatch.expected}, found {mismatch.found}")
    for name in done.audit.unreachable:
        note(f"not audited, out of reach: {name}")
    note(f"audited accounts: {done.audit.accounts}, mismatches: {len(done.audit.mismatches)}")
