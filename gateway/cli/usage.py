"""`gateway usage`: list · show. `gateway usage ACCOUNT` is `gateway usage list ACCOUNT`."""

from __future__ import annotations

from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gateway.admin.pages import MOST
from gateway.cli.configuration import archive_option
from gateway.cli.output import note, print_json, print_record, print_rows, print_table
from gateway.cli.root import explained
from gateway.cli.server_option import only_here, remotable
from gateway.cli.session import either, run
from gateway.cli.values import PAST, WholeNumber

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings
    from gateway.ledger import LedgerLine
    from gateway.reports.call_details import CallDetails
    from gateway.reports.line_pages import LinePage

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


CARRY = "carry"  # the kind of the line that stands for those that left the store
ITEMS = ("bucket", "count", "price", "per", "amount")
ANSWERS = ("model", "provider", "code", "status", "ms")


class Usage(click.Group):
    """A group whose command is `list` where none is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put `list` before an account."""
        named = not args or args[0] in self.commands or args[0] == "--help"
        return super().parse_args(ctx, args if named else ["list", *args])


@click.group(cls=Usage)
def command() -> None:
    """Ledger lines with tokens and cost. `gateway usage ACCOUNT` lists those of an account."""


@command.command("list")
@click.argument("account")
@click.option("--since", type=PAST, metavar="WHEN", help="An RFC 3339 time, or how long ago: 30d, 12h, 45m.")
@click.option("--limit", type=WholeNumber(1, MOST), metavar="N", help="Only the newest N lines, the newest first.")
@click.option("--before", metavar="CURSOR", help="With --limit: the lines after a page, which ends with the cursor.")
@archive_option
@remotable
def list_(
    settings: Settings,
    account: str,
    since: datetime | None,
    limit: int | None,
    before: str | None,
    archives: tuple[Path, ...],
    as_json: bool,
) -> None:
    """The ledger lines of ACCOUNT, oldest first; a charge is negative. Old lines come from the database."""
    if limit is not None:
        if since is not None or archives:
            raise click.UsageError("--limit goes with neither --since nor --archive")
        _print_page(settings, account, limit, before, as_json=as_json)
        return
    if before is not None:
        raise click.UsageError("--before goes with --limit")

    only_here(archive=archives)

    async def work(session: StoreSession) -> list[dict[str, Any]]:
        from gateway.ledger.line import read_shown_line

        await session.accounts.show(account)
        lines = session.ledger.lines(account, since=since, archives=archives, read=read_shown_line)
        return [form async for line in lines for form in _shown(settings, line, since)]

    async def there(client: AdminClient) -> list[dict[str, Any]]:
        moment = since.isoformat() if since else None
        return (await client.pages("accounts", account, "lines", since=moment))[::-1]

    print_rows(COLUMNS, either(lambda: run(settings, work), there), as_json=as_json)


@command.command()
@click.argument("request_id")
@click.option("--account", metavar="A", help="Look into the store, too: a call of the last second is only there.")
@remotable
def show(settings: Settings, request_id: str, account: str | None, as_json: bool) -> None:
    """One call: what it was charged and why, what answered, and how long it took."""

    async def work(session: StoreSession) -> dict[str, Any]:
        return (await _details(session, request_id, account)).json_form()

    async def there(client: AdminClient) -> dict[str, Any]:
        found: dict[str, Any] = await client.get("calls", request_id, account=account)
        return found

    form = either(lambda: run(settings, work), there)
    if as_json:
        print_json(form)
        return
    cost, answers = form.pop("cost"), form.pop("answers", ())
    del form["lines"]
    print_record(form, as_json=False)
    if answers:
        click.echo()
        print_table(ANSWERS, answers)
    if cost is not None:
        click.echo()
        total = {"bucket": "total", "amount": cost["total"]}
        factors = [{"bucket": name, "amount": f"× {cost[name]}"} for name in ("tier_factor", "price_factor")]
        shown = [factor for factor in factors if factor["amount"] != "× 1"]
        print_table(ITEMS, [*cost["items"], *shown, total])


async def _page(session: StoreSession, account: str, limit: int, before: str | None) -> LinePage:
    from gateway.accounts.accounts import StoreDirectory
    from gateway.database.existing import history_database
    from gateway.errors import DatabaseUnavailable
    from gateway.reports.line_pages import LinePages

    async def older(account: str, until: int, since: int, most: int) -> list[LedgerLine]:
        try:
            with history_database(session.settings) as database:
                if database is None:
                    return []
                from gateway.history.reader import read_newest_lines

                with database.reading() as connection:
                    return read_newest_lines(connection, account, until=until, since=since, most=most)
        except DatabaseUnavailable as error:
            note(f"older lines are in the database: {explained(error)}")
            return []

    pages = LinePages(session.store, StoreDirectory(session.store), older)
    return await pages.page(session.actor, account, limit=limit, before=before)


def _print_page(settings: Settings, account: str, limit: int, before: str | None, *, as_json: bool) -> None:
    async def work(session: StoreSession) -> dict[str, Any]:
        return (await _page(session, account, limit, before)).json_form()

    async def there(client: AdminClient) -> dict[str, Any]:
        found: dict[str, Any] = await client.get("accounts", account, "lines", limit=limit, cursor=before)
        return found

    form = either(lambda: run(settings, work), there)
    if as_json:
        print_json(form)
        return
    print_table(COLUMNS, form["data"])
    if form["next_cursor"] is not None:
        note(f"older lines: --before {form['next_cursor']}")


async def _details(session: StoreSession, request_id: str, account: str | None) -> CallDetails:
    from gateway.admin.transactions import Transactions
    from gateway.database.existing import history_database
    from gateway.history.sql_thread import SqlThread
    from gateway.reports.call_details import CallReader

    with history_database(session.settings) as database, closing(SqlThread()) as sql:
        transactions = None if database is None else Transactions(database, sql)
        return await CallReader(transactions, session.store).show(session.actor, request_id, account)


def _shown(settings: Settings, line: LedgerLine, since: datetime | None) -> list[dict[str, Any]]:
    """A line; in place of the sum of the lines that left the store, these lines from the database."""
    if line.kind != CARRY:
        return [line.shown]
    from gateway.ledger.archive_checkpoint import ArchiveCheckpoint

    found = _from_database(settings, line, since)
    if not found or (found[-1].n, found[-1].balance) != (line.n, line.balance):
        return [line.shown]
    opening = ArchiveCheckpoint(found[0].n - 1, found[0].id, found[0].balance - found[0].amount)
    carried = [opening.line(line.account)] if opening.n and since is None else []
    return [one.shown for one in (*carried, *found)]


def _from_database(settings: Settings, carried: LedgerLine, since: datetime | None) -> list[LedgerLine]:
    from gateway.database.existing import history_database
    from gateway.errors import DatabaseUnavailable

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
