"""`gateway audit-trail`: who changed what, from the database and from the store's events that are not moved yet."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from gateway.cli.ask import ask
from gateway.cli.output import print_rows
from gateway.cli.server_option import remotable
from gateway.cli.values import PAST, WholeNumber

if TYPE_CHECKING:
    from gateway.config.settings import Settings

COLUMNS = ("at", "actor", "action", "object", "account", "before", "after", "address")
MOST = 1000


@click.command()
@click.option("--since", type=PAST, metavar="WHEN", help="An RFC 3339 time, or how long ago: 30d, 12h, 45m.")
@click.option("--actor", default="", metavar="WHO", help="`KIND:ID`, a kind (cli, user, token), an id, or an e-mail.")
@click.option("--object", "object_", default="", metavar="WHAT", help="`KIND:ID` such as account:acme, or a kind.")
@click.option("--account", default="", metavar="A", help="What belongs to this account.")
@click.option(
    "--limit", type=WholeNumber(1, MOST), default=100, show_default=True, metavar="N", help="The newest N events."
)
@remotable
def command(
    settings: Settings, since: datetime | None, actor: str, object_: str, account: str, limit: int, as_json: bool
) -> None:
    """Who changed what, newest first."""

    query = {
        "since": since.isoformat() if since else None,
        "actor": actor or None,
        "object": object_ or None,
        "account": account or None,
    }
    found = ask(settings, lambda admin: admin.pages("audit-trail", most=limit, **query))
    print_rows(COLUMNS, found, as_json=as_json)
