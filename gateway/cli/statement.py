"""`gateway accounts statement`: an account's month."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import click

from gateway.cli.configuration import configured
from gateway.cli.history_database import existing_database
from gateway.cli.output import note, print_csv, print_json, print_record, print_table
from gateway.cli.session import Session, change
from gateway.config.settings import Settings

if TYPE_CHECKING:
    from gateway.admin.statement import Statement

SUMMARY = (
    "account", "month", "status", "number", "opening_balance", "correction", "credits", "adjustments", "refunds",
    "charges", "closing_balance", "uncollected", "first_line", "last_line", "hash",
)  # fmt: skip
CHARGED = ("model", "key", "key_name", "calls", "tokens_in", "tokens_out", "amount", "uncollected")
MOVEMENTS = ("at", "section", "id", "request_id", "note", "amount")


@click.command("statement")
@click.argument("name", metavar="ACCOUNT")
@click.option("--month", required=True, metavar="YYYY-MM", help="The month, in UTC.")
@click.option("--csv", "form", flag_value="csv", help="Print a CSV file.")
@click.option("--html", "form", flag_value="html", help="Print a page for a browser or a printer.")
@configured
def command(settings: Settings, name: str, month: str, form: str | None, as_json: bool) -> None:
    """The opening balance of a month, all movements, and the closing balance."""
    statement = change(settings, lambda session: _statement(session, name, month))
    if not statement.is_final:
        note("this statement is preliminary; the month is not over, or not all of its lines are imported yet")
    if statement.ledger == "differs":
        note("the ledger was changed after this statement was final; see `gateway audit`")
    if as_json:
        print_json(statement.json_form())
    elif form == "csv":
        from gateway.admin.statement import CSV_COLUMNS

        print_csv(CSV_COLUMNS, statement.csv_records())
    elif form == "html":
        from gateway.admin.statement_page import statement_page

        click.echo(statement_page(statement), nl=False)
    else:
        _print(statement)


async def _statement(session: Session, account: str, month: str) -> Statement:
    from gateway.admin.directory import StoreDirectory
    from gateway.admin.statements import Statements
    from gateway.admin.transactions import Transactions
    from gateway.history import binding
    from gateway.history.sql_thread import SqlThread

    with existing_database(session.settings) as database, closing(SqlThread()) as sql:
        if known := await binding.remembered(session.store):
            binding.check(known, database)
        statements = Statements(Transactions(database, sql), session.store, StoreDirectory(session.store))
        return await statements.statement(session.actor, account, month)


def _print(statement: Statement) -> None:
    form = statement.json_form()
    print_record({name: form[name] for name in SUMMARY}, as_json=False)
    for columns, rows in ((CHARGED, form["charged"]), (MOVEMENTS, form["movements"])):
        if rows:
            click.echo()
            print_table(columns, rows)
