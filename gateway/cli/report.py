"""`gateway report`: sums of usage for any range, in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

import click

from gateway.admin.actor import Actor, command_line, login_name
from gateway.cli.history_database import existing_database
from gateway.cli.output import note, print_csv, print_json, print_table
from gateway.cli.server_option import remotable
from gateway.cli.session import either
from gateway.cli.values import NAMES, PAST, WholeNumber
from gateway.reports.report_table import MOST_GROUPS, ReportTable

if TYPE_CHECKING:
    from gateway.admin.transactions import Transactions
    from gateway.cli.admin_client import AdminClient
    from gateway.config.settings import Settings


T = TypeVar("T")


class Filters(TypedDict, total=False):
    """The permitted values by dimension."""

    account: list[str] | None
    user: list[str] | None
    key: list[str] | None
    model: list[str] | None
    provider: list[str] | None
    endpoint: list[str] | None
    outcome: list[str] | None
    tag: list[str] | None
    session: list[str] | None


def _filters(function: Any) -> Any:
    for name in reversed(Filters.__annotations__):
        help_ = f"Only calls with one of these values of {name}."
        function = click.option(f"--{name}", name, type=NAMES, metavar="A,…", help=help_)(function)
    return function


@click.command()
@click.option("--from", "since", type=PAST, default="30d", show_default=True, metavar="WHEN", help="The first hour.")
@click.option("--to", "until", type=PAST, default="0s", metavar="WHEN", help="The end, not included; default now.")
@click.option("--group-by", type=NAMES, metavar="G,…", help="Dimensions, and hour, day or month.")
@_filters
@click.option("--margin", is_flag=True, help="Also what the calls cost you, where targets have a cost price.")
@click.option(
    "--limit",
    type=WholeNumber(1, MOST_GROUPS),
    metavar="N",
    help="Only the N most expensive groups, and the sums of all others.",
)
@click.option("--format", "form", type=click.Choice(("table", "csv", "json")), default="table", help="The output.")
@remotable
def command(
    settings: Settings,
    since: datetime,
    until: datetime,
    group_by: list[str] | None,
    margin: bool,
    limit: int | None,
    form: str,
    as_json: bool,
    **filters: Unpack[Filters],
) -> None:
    """Calls, tokens, money and times in a range, in groups; in UTC and whole hours."""

    given = {name: values for name, values in filters.items() if isinstance(values, list)}

    async def work(session: HistorySession) -> Any:
        from gateway.reports.reports import ReportQuery, Reports

        query = ReportQuery(since=since, until=until, group_by=group_by or (), filters=given, margin=margin)
        return (await Reports(session.transactions).report(session.actor, query, limit=limit)).json_form()

    async def there(client: AdminClient) -> Any:
        query: dict[str, Any] = {name: ",".join(values) for name, values in given.items()}
        query |= {"from": since.isoformat(), "to": until.isoformat(), "group_by": ",".join(group_by or ()) or None}
        return await client.get("usage", **query, margin="true" if margin else None, limit=limit)

    document = either(lambda: run_history(settings, work), there)
    if as_json or form == "json":
        print_json(document)
        return
    table = ReportTable(document)
    if form == "csv":
        print_csv(table.columns(), table.records())
        return
    print_table(table.columns(), [*table.records(), *table.ends()] if document["group_by"] else table.ends())
    note(f"from {document['from']} to {document['to']}")


class HistorySession:
    """What commands that read reports work with."""

    def __init__(self, transactions: Transactions) -> None:
        self.transactions = transactions
        self.actor: Actor = command_line(login_name())


def run_history(settings: Settings, work: Callable[[HistorySession], Awaitable[T]]) -> T:
    """Open the database, do `work`, close it; Failure if there is none."""
    with existing_database(settings) as database:
        from gateway.admin.transactions import Transactions
        from gateway.history.sql_thread import SqlThread

        async def session() -> T:
            with closing(SqlThread()) as sql:
                return await work(HistorySession(Transactions(database, sql)))

        return asyncio.run(session())
