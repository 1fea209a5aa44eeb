"""`gateway usage`: an account's ledger lines with tokens and cost."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from gateway.cli.configuration import archive_option, configured
from gateway.cli.output import print_rows
from gateway.cli.session import Session, run
from gateway.cli.values import PAST
from gateway.config.settings import Settings

COLUMNS = (
    "at",
    "kind",
    "request_id",
    "model",
    "served_model",
    "provider",
    "key",
    "amount",
    "balance",
    "uncollected",
    "usage",
    "estimated",
    "attempts",
)


@click.command()
@click.argument("account")
@click.option("--since", type=PAST, metavar="WHEN", help="An RFC 3339 time, or how long ago: 30d, 12h, 45m.")
@archive_option
@configured
def command(
    settings: Settings, account: str, since: datetime | None, archives: tuple[Path, ...], as_json: bool
) -> None:
    """The ledger lines of ACCOUNT, oldest first; a charge is negative."""

    async def work(session: Session) -> list[dict[str, Any]]:
        await session.accounts.show(account)
        return [line.json_form() async for line in session.ledger.lines(account, since=since, archives=archives)]

    print_rows(COLUMNS, run(settings, work), as_json=as_json)
