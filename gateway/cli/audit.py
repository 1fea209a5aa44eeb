"""`gateway audit`: the ledger held against the balances."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from gateway.cli.configuration import archive_option, configured
from gateway.cli.output import note, print_json, print_table
from gateway.cli.session import Session, run
from gateway.config.settings import Settings
from gateway.ledger import AuditReport

COLUMNS = ("account", "rule", "expected", "found")


@click.command()
@click.argument("account", required=False)
@archive_option
@configured
@click.pass_context
def command(
    ctx: click.Context, settings: Settings, account: str | None, archives: tuple[Path, ...], as_json: bool
) -> None:
    """Hold the ledger of ACCOUNT, or of all, against the balances; exit status 1 at a mismatch or one out of reach."""

    async def work(session: Session) -> AuditReport:
        if account is not None:
            await session.accounts.show(account)
        return await session.ledger.audit(account, archives=archives)

    report = run(settings, work)
    if as_json:
        print_json(report)
    elif report.mismatches:
        print_table(COLUMNS, msgspec.to_builtins(report.mismatches))
    note(f"accounts: {report.accounts}, ledger lines: {report.lines}, mismatches: {len(report.mismatches)}")
    if report.unreachable:
        note(f"not audited, their server is away: {', '.join(report.unreachable)}")
    ctx.exit(1 if report.mismatches or report.unreachable else 0)
