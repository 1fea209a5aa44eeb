"""`gateway audit`: the ledger held against the balances."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.admin.ledger_audit import audit_ledger
from gateway.cli.configuration import archive_option, configured
from gateway.cli.history_database import history_database
from gateway.cli.output import note, print_json, print_table
from gateway.cli.root import explained
from gateway.cli.session import Session, run
from gateway.config.settings import Settings
from gateway.errors import DatabaseUnavailable
from gateway.ledger import AuditReport

if TYPE_CHECKING:
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
@configured
@click.pass_context
def command(
    ctx: click.Context,
    settings: Settings,
    account: str | None,
    expect_accounts: int | None,
    archives: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Hold the ledger of ACCOUNT, or of all, against the balances; exit status 1 at a mismatch or one out of reach."""
    report = run(settings, lambda session: _audit_both(session, account, expect_accounts, archives))
    form = report.json_form()
    if as_json:
        print_json(form)
    else:
        _print_tables(form)
    note(f"accounts: {report.accounts}, ledger lines: {report.lines}, mismatches: {len(report.mismatches)}")
    if report.history_lines:
        note(f"lines in the database: {report.history_lines}")
    if report.recomputed or report.not_recomputed:
        note(f"calls computed again: {report.recomputed}, not: {report.not_recomputed}")
    if report.moving:
        note(f"busy, so their holds and keys were not compared: {', '.join(report.moving)}")
    if report.unreachable:
        note(f"not audited, their server is away: {', '.join(report.unreachable)}")
    ctx.exit(0 if report.clean else 1)


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
