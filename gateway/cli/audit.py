"""`gateway audit`: the ledger held against the balances."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.admin.ledger_audit import audit_ledger
from gateway.cli.configuration import archive_option
from gateway.cli.output import note, print_json, print_table
from gateway.cli.root import explained
from gateway.cli.server_option import only_here, remotable
from gateway.cli.session import Session, either, run
from gateway.config.settings import Settings
from gateway.database.existing import history_database
from gateway.errors import DatabaseUnavailable
from gateway.ledger import AuditReport

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.database.engine import Database

# What is printed of each list of the report: its title, and the columns.
TABLES = {
    "mismatches": ("Mismatches", ("account", "rule", "expected", "found")),
    "overdrawn": ("Overdrawn, as late lines or lines of older versions explain", ("account", "amount")),
    "late": ("Charged after the hold was lost", ("account", "request_id", "line", "amount")),
    "uncollected": ("Not collected, because the money was not there", ("account", "lines", "amount")),
}


@click.command()
@click.argument("account", required=False)
@click.option(
    "--expect-accounts",
    type=click.IntRange(min=0),
    metavar="N",
    help="The least number of accounts of the store; by default the largest that was seen from this data directory.",
)
@archive_option
@remotable
@click.pass_context
def command(
    ctx: click.Context,
    settings: Settings,
    account: str | None,
    expect_accounts: int | None,
    archives: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Compare the ledger of ACCOUNT, or of all, with the balances; exit status 1 at a mismatch or one out of reach."""
    only_here(archive=archives, expect_accounts=expect_accounts)

    async def there(client: AdminClient) -> dict[str, Any]:
        form: dict[str, Any] = await client.post("audits", body={"account": account})
        del form["clean"]
        return form

    async def work(session: Session) -> dict[str, Any]:
        return (await _audit_both(session, account, expect_accounts, archives)).json_form()

    form = either(lambda: run(settings, work), there)
    if as_json:
        print_json(form)
    else:
        _print_tables(form)
    note(f"accounts: {form['accounts']}, ledger lines: {form['lines']}, mismatches: {len(form['mismatches'])}")
    if form["history_lines"]:
        note(f"lines in the database: {form['history_lines']}")
    if form["recomputed"] or form["not_recomputed"]:
        note(f"calls computed again: {form['recomputed']}, not: {form['not_recomputed']}")
    if form["moving"]:
        note(f"busy, so their holds and keys were not compared: {', '.join(form['moving'])}")
    if form["unreachable"]:
        note(f"not audited, their server is away: {', '.join(form['unreachable'])}")
    ctx.exit(1 if form["mismatches"] or form["unreachable"] else 0)


async def _audit_both(
    session: Session, account: str | None, expect_accounts: int | None, archives: Sequence[Path]
) -> AuditReport:
    report = await audit_ledger(session, account, expect_accounts=expect_accounts, archives=archives, warn=note)
    try:
        with history_database(session.settings) as database:
            if database is not None:
                report.add(await _audit_history(session, database, account))
    except DatabaseUnavailable as error:
        note(f"the history was not audited: {explained(error)}")
        report.unreachable.append("database")
    return report


async def _audit_history(session: Session, database: Database, account: str | None) -> AuditReport:
    from gateway.history.audit import audit_history
    from gateway.history.sql_thread import SqlThread

    with closing(SqlThread()) as sql:
        return await audit_history(session.store, database, sql, account)


def _print_tables(form: dict[str, Any]) -> None:
    for name, (title, columns) in TABLES.items():
        if form[name]:
            click.echo(f"{title}:")
            print_table(columns, form[name])
            click.echo()
