"""`gateway accounts statement` and `statements`: an account's month, and the final ones of all months."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from typing import TYPE_CHECKING, Any

import click

from gateway.cli.history_database import existing_database
from gateway.cli.output import note, print_csv, print_json, print_record, print_rows, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import change, either, run

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.reports.statements import Statements

SUMMARY = (
    "account", "month", "status", "number", "opening_balance", "correction", "credits", "adjustments", "refunds",
    "charges", "closing_balance", "uncollected", "first_line", "last_line", "hash",
)  # fmt: skip
CHARGED = ("model", "key", "key_name", "calls", "tokens_in", "tokens_out", "amount", "uncollected")
MOVEMENTS = ("at", "section", "id", "request_id", "note", "amount")
FINAL = ("number", "account", "month", "closing_balance", "fixed")


@click.command("statement")
@click.argument("name", metavar="ACCOUNT")
@click.option("--month", required=True, metavar="YYYY-MM", help="The month, in UTC.")
@click.option("--csv", "output", flag_value="csv", help="Print a CSV file.")
@click.option("--html", "output", flag_value="html", help="Print a page for a browser or a printer.")
@remotable
def command(settings: Settings, name: str, month: str, output: str | None, as_json: bool) -> None:
    """The opening balance of a month, all movements, and the closing balance."""

    async def work(session: StoreSession) -> dict[str, Any]:
        async with _statements(session) as statements:
            return (await statements.statement(session.actor, name, month)).json_form()

    async def there(client: AdminClient) -> dict[str, Any]:
        found: dict[str, Any] = await client.get("accounts", name, "statements", month)
        return found

    form = either(lambda: change(settings, work), there)
    if form["status"] == "preliminary":
        note("this statement is preliminary; the month is not over, or not all of its lines are imported yet")
    if form["ledger"] == "differs":
        note("the ledger was changed after this statement was final; see `gateway audit`")
    if as_json:
        print_json(form)
    elif output is None:
        _print(form)
    else:
        _print_file(form, output)


@click.command("statements")
@click.argument("name", metavar="ACCOUNT")
@remotable
def list_command(settings: Settings, name: str, as_json: bool) -> None:
    """The final statements of ACCOUNT, the newest month first."""

    async def work(session: StoreSession) -> list[dict[str, Any]]:
        async with _statements(session) as statements:
            return [one.json_form() for one in await statements.list(session.actor, name)]

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = (await client.get("accounts", name, "statements"))["data"]
        return found

    print_rows(FINAL, either(lambda: run(settings, work), there), as_json=as_json)


@asynccontextmanager
async def _statements(session: StoreSession) -> AsyncIterator[Statements]:
    from gateway.accounts.accounts import StoreDirectory
    from gateway.admin.transactions import Transactions
    from gateway.history import binding
    from gateway.history.sql_thread import SqlThread
    from gateway.reports.statements import Statements

    with existing_database(session.settings) as database, closing(SqlThread()) as sql:
        if known := await binding.remembered(session.store):
            binding.check(known, database)
        yield Statements(Transactions(database, sql), session.store, StoreDirectory(session.store))


def _print_file(form: Mapping[str, Any], output: str) -> None:
    from gateway.reports.statement import CSV_COLUMNS, statement_of
    from gateway.reports.statement_page import statement_page

    statement = statement_of(form)
    if output == "csv":
        print_csv(CSV_COLUMNS, statement.csv_records())
    else:
        click.echo(statement_page(statement), nl=False)


def _print(form: Mapping[str, Any]) -> None:
    print_record({name: form[name] for name in SUMMARY}, as_json=False)
    for columns, rows in ((CHARGED, form["charged"]), (MOVEMENTS, form["movements"])):
        if rows:
            click.echo()
            print_table(columns, rows)
