"""`gateway refused`: settlements that the store refused: list · book."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from gateway.accounts.accounts import Refused
from gateway.amounts import format_amount
from gateway.cli.configuration import archive_option, configured
from gateway.cli.history_database import history_database
from gateway.cli.output import note, print_rows
from gateway.cli.root import Failure
from gateway.cli.session import Session, change, run
from gateway.config.settings import Settings
from gateway.errors import GatewayError
from gateway.ledger import LedgerLine
from gateway.ledger.archive_checkpoint import CARRY
from gateway.ledger.entry import Entry
from gateway.ledger.refused import RefusedFile

COLUMNS = ("at", "request_id", "account", "key", "amount", "state")
OPEN, BOOKED, NO_ACCOUNT = "open", "booked", "no account"


@click.group()
def command() -> None:
    """Settlements that the store refused, such as those of an account that does not exist."""


@command.command("list")
@configured
def list_(settings: Settings, as_json: bool) -> None:
    """What is in refused.jsonl; `open` can be booked, `booked` was charged meanwhile."""
    entries = _file(settings).read()

    async def work(session: Session) -> list[dict[str, Any]]:
        return [_form(entry, await _state(session, entry)) for entry in entries]

    print_rows(COLUMNS, run(settings, work) if entries else [], as_json=as_json)


@command.command()
@click.argument("request_ids", nargs=-1, metavar="[REQUEST_ID]...")
@click.option("--all", "every", is_flag=True, help="All of them.")
@archive_option
@configured
@click.pass_context
def book(
    ctx: click.Context,
    settings: Settings,
    request_ids: tuple[str, ...],
    every: bool,
    archives: tuple[Path, ...],
    as_json: bool,
) -> None:
    """Charge the named requests, or all, and remove them from refused.jsonl; a charged one is not charged again."""
    if bool(request_ids) == every:
        raise click.UsageError("name requests, or say --all")
    file = _file(settings)
    missing = set(request_ids) - {entry.request_id for entry in file.read()}
    if missing:
        raise Failure(f"not in {file.path}: {', '.join(sorted(missing))}")
    forms: list[dict[str, Any]] = []
    chosen = None if every else set(request_ids)
    change(settings, lambda session: _book(session, file, chosen, archives, forms))
    print_rows(COLUMNS, forms, as_json=as_json)
    left = [form for form in forms if form["state"] != BOOKED]
    note(f"booked: {len(forms) - len(left)}, still refused: {len(left)}")
    ctx.exit(1 if left else 0)


async def _book(
    session: Session, file: RefusedFile, chosen: set[str] | None, archives: Sequence[Path], forms: list[dict[str, Any]]
) -> None:
    """Book the chosen entries, all for None; `forms` gets a row for each. All others go back into the file."""
    left: list[Entry] = []
    entries = file.take()
    try:
        while entries:
            entry = entries[0]
            if chosen is None or entry.request_id in chosen:
                state = await _booked(session, entry, archives)
                forms.append(_form(entry, state))
                if state != BOOKED:
                    left.append(entry)
            else:
                left.append(entry)
            entries.pop(0)
    finally:
        file.give_back([*left, *entries])


async def _booked(session: Session, entry: Entry, archives: Sequence[Path]) -> str:
    if not await _exists(session, entry):
        return NO_ACCOUNT
    try:
        charged = None if archives else await _is_charged(session, entry)
        if charged:
            return BOOKED
        searched = charged is not None
        return await session.ledger.book_refused(entry, archives=archives, searched=searched) or BOOKED
    except GatewayError as error:
        return error.log_text() or error.message


async def _is_charged(session: Session, entry: Entry) -> bool | None:
    """Whether the request has a line in the database or in the store; None if the store itself can tell."""
    opening, lines = None, list[LedgerLine]()
    async for line in session.ledger.lines(entry.account):
        if line.kind == CARRY:
            opening = line
        else:
            lines.append(line)
    since = entry.at // 1000
    if opening is None or opening.milliseconds < since:
        return None
    with history_database(session.settings) as database:
        if database is None:
            return None
        from gateway.history.reader import read_history

        earlier = list(read_history(database, entry.account, since=since, until=opening.n))
    if not earlier or (earlier[-1].n, earlier[-1].balance) != (opening.n, opening.balance):
        return None  # the database lacks lines
    return any(line.request_id == entry.request_id for line in (*earlier, *lines))


async def _state(session: Session, entry: Entry) -> str:
    if not await _exists(session, entry):
        return NO_ACCOUNT
    return BOOKED if await session.ledger.charge_of(entry.account, entry.request_id) is not None else OPEN


async def _exists(session: Session, entry: Entry) -> bool:
    try:
        await session.accounts.show(entry.account)
    except Refused:
        return False
    return True


def _file(settings: Settings) -> RefusedFile:
    return RefusedFile(settings.data_dir / "journal")


def _form(entry: Entry, state: str) -> dict[str, Any]:
    at = datetime.fromtimestamp(entry.at / 1_000_000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
    return {
        "at": at,
        "request_id": entry.request_id,
        "account": entry.account,
        "key": entry.key_id,
        "amount": format_amount(entry.amount),
        "state": state,
    }
