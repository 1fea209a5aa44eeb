"""`gateway refused`: settlements that the store refused: list · book."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.admin.refused_settlements import RefusedSettlements
from gateway.cli.configuration import archive_option
from gateway.cli.output import note, print_rows
from gateway.cli.server_option import only_here, remotable
from gateway.cli.session import change, either, run
from gateway.database.existing import history_database
from gateway.ledger import LedgerLine

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings

COLUMNS = ("at", "request_id", "account", "key", "amount", "state")


@click.group()
def command() -> None:
    """Settlements that the store refused, such as those of an account that does not exist."""


@command.command("list")
@remotable
def list_(settings: Settings, as_json: bool) -> None:
    """What is in refused.jsonl; `open` can be booked, `booked` was charged meanwhile."""

    async def work(session: StoreSession) -> list[dict[str, Any]]:
        return [found.json_form() for found in await _refused(session).all(session.actor)]

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        return await client.pages("refused-settlements")

    print_rows(COLUMNS, either(lambda: run(settings, work), there), as_json=as_json)


@command.command()
@click.argument("request_ids", nargs=-1, metavar="[REQUEST_ID]...")
@click.option("--all", "every", is_flag=True, help="All of them.")
@archive_option
@remotable
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
    only_here(archive=archives)

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        body = {"all": True} if every else {"request_ids": request_ids}
        found: list[dict[str, Any]] = (await client.post("refused-settlements", "book", body=body))["data"]
        return found

    forms = either(lambda: change(settings, lambda session: _book(session, request_ids, archives)), there)
    print_rows(COLUMNS, forms, as_json=as_json)
    left = [form for form in forms if form["state"] != "booked"]
    note(f"booked: {len(forms) - len(left)}, still refused: {len(left)}")
    ctx.exit(1 if left else 0)


async def _book(session: StoreSession, request_ids: Sequence[str], archives: Sequence[Path]) -> list[dict[str, Any]]:
    done = await _refused(session).book(session.actor, request_ids or None, archives=archives)
    return [one.json_form() for one in done]


def _refused(session: StoreSession) -> RefusedSettlements:
    async def older(account: str, until: int, since: int) -> list[LedgerLine] | None:
        with history_database(session.settings) as database:
            if database is None:
                return None
            from gateway.history.reader import read_history

            return list(read_history(database, account, since=since, until=until))

    return RefusedSettlements(session.settings.data_dir, session.accounts, session.ledger, session.outbox, older)
