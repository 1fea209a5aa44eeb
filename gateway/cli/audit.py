"""`gateway audit`: the ledger held against the balances."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.configuration import archive_option
from gateway.cli.output import Progress, note, print_json, print_table
from gateway.cli.root import explained
from gateway.cli.server_option import only_here, remotable
from gateway.cli.session import either, run
from gateway.cli.values import WholeNumber

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.database.engine import Database
    from gateway.ledger import AuditReport
    from gateway.ledger.auditing.pages import PageAuditors

# What is printed of each list of the report: its title, and the columns.
TABLES = {
    "mismatches": ("Mismatches", ("account", "rule", "expected", "found")),
    "overdrawn": ("Overdrawn, as late lines or lines of older versions explain", ("account", "amount")),
    "late": ("Charged after the hold was lost", ("account", "request_id", "line", "amount")),
    "uncollected": ("Not collected, because the money was not there", ("account", "lines", "amount")),
    "superseded": (
        "Superseded: the store has lost them, and nothing has booked them again",
        ("id", "account", "line", "kind", "request_id", "amount", "at"),
    ),
    "changes": ("Changes that the store has lost", ("at", "action", "object", "account")),
}

FAULTS = ("mismatches", "unreachable", "superseded_lines", "lost_changes")


@click.command()
@click.argument("account", required=False)
@click.option(
    "--expect-accounts",
    type=WholeNumber(min=0),
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
    """Compare the ledger of ACCOUNT, or of all, with the balances; exit status 1 if something is wrong."""
    only_here(archive=archives, expect_accounts=expect_accounts)

    async def there(client: AdminClient) -> dict[str, Any]:
        form: dict[str, Any] = await client.post("audits", body={"account": account})
        del form["clean"]
        return form

    async def work(session: StoreSession) -> dict[str, Any]:
        with Progress() as progress:
            return (await _audit_both(session, account, expect_accounts, archives, progress)).json_form()

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
    if form["superseded_lines"]:
        note(f"superseded lines: {form['superseded_lines']}; see `gateway superseded list`")
    if form["lost_changes"]:
        note(f"lost changes: {form['lost_changes']}; repeat them, then `gateway superseded acknowledge --all`")
    ctx.exit(1 if any(form[name] for name in FAULTS) else 0)


async def _audit_both(
    session: StoreSession,
    account: str | None,
    expect_accounts: int | None,
    archives: Sequence[Path],
    progress: Progress,
) -> AuditReport:
    from gateway.attention.audit_findings import remember_audit
    from gateway.database.address import address_of
    from gateway.database.existing import history_database
    from gateway.errors import DatabaseUnavailable
    from gateway.ledger.auditing.report import STORE, Mismatch
    from gateway.services.audit_processes import audit_processes
    from gateway.services.ledger_audit import audit_ledger

    async with audit_processes(session.store, address_of(session.settings)) as processes:
        report = await audit_ledger(
            session,
            account,
            expect_accounts=expect_accounts,
            archives=archives,
            warn=note,
            progress=progress,
            processes=processes,
        )
        try:
            with history_database(session.settings) as database:
                if database is not None:
                    report.add(await _audit_history(session, database, account, progress, processes))
                elif report.left_lines:
                    # Nothing is left of them to compute or to add up: without this, the audit would call that clean.
                    lines = f"{report.left_lines} lines that left the store"
                    report.mismatches.append(Mismatch(account or STORE, "history missing", lines, "no database"))
        except DatabaseUnavailable as error:
            note(f"the history was not audited: {explained(error)}")
            report.unreachable.append("database")
    await remember_audit(session.store, account, report)
    return report


async def _audit_history(
    session: StoreSession,
    database: Database,
    account: str | None,
    progress: Progress,
    processes: PageAuditors | None,
) -> AuditReport:
    from gateway.history.audit import audit_history
    from gateway.history.sql_thread import SqlThread

    with closing(SqlThread()) as sql:
        return await audit_history(session.store, database, sql, account, progress=progress, processes=processes)


def _print_tables(form: dict[str, Any]) -> None:
    for name, (title, columns) in TABLES.items():
        if form[name]:
            click.echo(f"{title}:")
            print_table(columns, form[name])
            click.echo()
