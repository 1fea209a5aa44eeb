"""`gateway superseded`: lines that an older store lacks: list · book · acknowledge."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gateway.cli.history_database import existing_database
from gateway.cli.output import note, print_json, print_record, print_rows, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import change, either, run
from gateway.cli.values import WholeNumber

if TYPE_CHECKING:
    from gateway.admin.superseded_lines import SupersededLines
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings

T = TypeVar("T")

COLUMNS = ("id", "account", "line", "kind", "request_id", "amount", "at")
BOOKED = (*COLUMNS, "state", "booked")
PATH = "superseded-lines"

ids_argument = click.argument("ids", nargs=-1, type=WholeNumber(min=1), metavar="[ID]...")
all_option = click.option("--all", "every", is_flag=True, help="All that are open.")
account_option = click.option("--account", metavar="A", help="Only those of this account.")


@click.group()
def command() -> None:
    """Ledger lines that the database has and the store has lost, which nothing has booked again."""


@command.command("list")
@account_option
@click.option("--limit", type=WholeNumber(1, 10_000), default=1000, show_default=True, help="The first N of them.")
@remotable
def list_(settings: Settings, account: str | None, limit: int, as_json: bool) -> None:
    """The open lines: neither booked again nor acknowledged."""

    async def work(session: StoreSession, lines: SupersededLines) -> list[dict[str, Any]]:
        found = await lines.open_lines(session.actor, account=account, limit=limit)
        return [one.json_form() for one in found]

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        return await client.pages(PATH, most=limit, account=account)

    print_rows(COLUMNS, either(lambda: run(settings, _on_lines(settings, work)), there), as_json=as_json)


@command.command()
@ids_argument
@all_option
@account_option
@remotable
@click.pass_context
def book(
    ctx: click.Context, settings: Settings, ids: tuple[int, ...], every: bool, account: str | None, as_json: bool
) -> None:
    """Book the lines with these IDs again, or all, each once; exit status 1 if one stays open."""
    chosen = _chosen(ids, every, account)

    async def work(session: StoreSession, lines: SupersededLines) -> dict[str, Any]:
        return (await lines.book(session.actor, ids or None, account=account)).json_form()

    async def there(client: AdminClient) -> dict[str, Any]:
        form: dict[str, Any] = await client.post(PATH, "book", body=chosen)
        return form

    form = either(lambda: change(settings, _on_lines(settings, work)), there)
    if as_json:
        print_json(form)
    elif form["lines"]:
        print_table(BOOKED, form["lines"])
    note(f"booked: {form['booked']}, still open: {form['left']}")
    ctx.exit(1 if form["left"] else 0)


@command.command()
@ids_argument
@all_option
@account_option
@click.option("--note", "text", default="", metavar="TEXT", help="Why; it is stored in the audit trail.")
@remotable
def acknowledge(
    settings: Settings, ids: tuple[int, ...], every: bool, account: str | None, text: str, as_json: bool
) -> None:
    """Close the lines with these IDs, or all, without booking them: the audit does not report them any more."""
    chosen = _chosen(ids, every, account)

    async def work(session: StoreSession, lines: SupersededLines) -> dict[str, Any]:
        return {"acknowledged": await lines.acknowledge(session.actor, ids or None, account=account, note=text)}

    async def there(client: AdminClient) -> dict[str, Any]:
        form: dict[str, Any] = await client.post(PATH, "acknowledge", body={**chosen, "note": text})
        return form

    print_record(either(lambda: run(settings, _on_lines(settings, work)), there), as_json=as_json)


def _chosen(ids: Sequence[int], every: bool, account: str | None) -> dict[str, Any]:
    """The body of a request that names these lines."""
    if bool(ids) == every:
        raise click.UsageError("name lines by their ids, or say --all")
    if ids and account is not None:
        raise click.UsageError("--account goes with --all")
    return {"all": True, "account": account} if every else {"ids": ids}


def _on_lines(
    settings: Settings, work: Callable[[StoreSession, SupersededLines], Awaitable[T]]
) -> Callable[[StoreSession], Awaitable[T]]:
    """`work` with the lines of the store's database, which is open meanwhile."""

    async def with_database(session: StoreSession) -> T:
        with existing_database(settings) as database:
            from gateway.admin.superseded_lines import SupersededLines
            from gateway.admin.transactions import Transactions
            from gateway.history import binding
            from gateway.history.sql_thread import SqlThread

            with closing(SqlThread()) as sql:
                await binding.belong(session.store, database, sql)
                transactions = Transactions(database, sql)
                return await work(
                    session,
                    SupersededLines(session.store, session.ledger, session.refunds, session.outbox, transactions),
                )

    return with_database
