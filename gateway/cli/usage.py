"""`gateway usage`: an account's ledger lines with tokens and cost."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import click

from gateway.cli.configuration import archive_option, configured
from gateway.cli.history_database import history_database
from gateway.cli.output import note, print_rows
from gateway.cli.root import explained
from gateway.cli.session import Session, run
from gateway.cli.values import PAST
from gateway.config.settings import Settings
from gateway.errors import DatabaseUnavailable
from gateway.ledger import LedgerLine
from gateway.ledger.archive_checkpoint import CARRY, ArchiveCheckpoint

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
    """The ledger lines of ACCOUNT, oldest first; a charge is negative. Old lines come from the database."""

    async def work(session: Session) -> list[dict[str, Any]]:
        await session.accounts.show(account)
        lines = session.ledger.lines(account, since=since, archives=archives)
        return [form async for line in lines for form in _shown(settings, line, since)]

    print_rows(COLUMNS, run(settings, work), as_json=as_json)


def _shown(settings: Settings, line: LedgerLine, since: datetime | None) -> list[dict[str, Any]]:
    """A line; in place of the sum of the lines that left the store, these lines from the database."""
    if line.kind != CARRY:
        return [line.json_form()]
    found = _from_database(settings, line, since)
    if not found or (found[-1].n, found[-1].balance) != (line.n, line.balance):
        return [line.json_form()]
    opening = ArchiveCheckpoint(found[0].n - 1, found[0].id, found[0].balance - found[0].amount)
    carried = [opening.line(line.account)] if opening.n and since is None else []
    return [one.json_form() for one in (*carried, *found)]


def _from_database(settings: Settings, carried: LedgerLine, since: datetime | None) -> list[LedgerLine]:
    start = int(since.timestamp() * 1000) if since else 0
    try:
        with history_database(settings) as database:
            if database is None:
                return []
            from gateway.history.reader import read_history

            return list(read_history(database, carried.account, since=start, until=carried.n))
    except DatabaseUnavailable as error:
        note(f"older lines are in the database: {explained(error)}")
        return []
