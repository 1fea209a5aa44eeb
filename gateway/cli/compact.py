"""`gateway compact`: old ledger lines leave the store for an archive file."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

import click

from gateway.cli.configuration import configured
from gateway.cli.output import note, print_json
from gateway.cli.session import Session, run
from gateway.cli.values import PAST
from gateway.config.settings import Settings
from gateway.ledger import Compacted


@click.command()
@click.argument("account", required=False)
@click.option("--all", "every", is_flag=True, help="All accounts instead of one.")
@click.option("--before", type=PAST, required=True, metavar="WHEN", help="Lines of before WHEN; at least 25h ago.")
@click.option(
    "--archive",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    metavar="FILE",
    help="Where the lines go; it is appended to.",
)
@configured
def command(
    settings: Settings, account: str | None, every: bool, before: datetime, archive: Path, as_json: bool
) -> None:
    """Move old ledger lines of ACCOUNT to an archive file; one carry stands for them and the audit stays whole."""
    if (account is None) != every:
        raise click.UsageError("name one ACCOUNT, or say --all")

    async def work(session: Session) -> Compacted:
        if account is not None:
            await session.accounts.show(account)
        return await session.ledger.compact(archive, before=before, account=account)

    report = run(settings, work)
    if as_json:
        print_json(report)
    note(f"lines moved to {archive}: {report.lines}, accounts: {report.accounts}")
