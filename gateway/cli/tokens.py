"""`gateway tokens`: create · list · revoke."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import click

from gateway.admin.actor import SCOPES, checked_scopes
from gateway.cli.admin_requests import written
from gateway.cli.ask import ask
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.server_option import remotable
from gateway.cli.values import FUTURE, NAMES

if TYPE_CHECKING:
    from gateway.config.settings import Settings

COLUMNS = ("id", "name", "last4", "state", "scopes", "account", "created_by", "expires", "last_used")


@click.group()
def command() -> None:
    """Admin tokens, for programs: made once, shown once, revoked for good."""


@command.command()
@click.argument("name")
@click.option("--scopes", type=NAMES, required=True, metavar="S,…", help=f"What it may do: {', '.join(SCOPES)}.")
@click.option("--account", metavar="A", help="The only account that it works on.")
@click.option("--expires", type=FUTURE, metavar="WHEN", help="An RFC 3339 time, or a duration: 30d, 12h, 45m.")
@remotable
def create(
    settings: Settings, name: str, scopes: list[str], account: str | None, expires: datetime | None, as_json: bool
) -> None:
    """Make a token and print it, alone, once: nobody can show it again."""
    checked_scopes(scopes, account)
    body = written({"name": name, "scopes": scopes, "account": account, "expires": expires})
    new = ask(settings, lambda admin: admin.post("tokens", body=body))
    if as_json:
        print_json(new)
    else:
        note(f"{new['id']}; keep the token, it is shown only now")
        click.echo(new["token"])


@command.command("list")
@remotable
def list_(settings: Settings, as_json: bool) -> None:
    """All tokens, newest first."""
    print_rows(COLUMNS, ask(settings, lambda admin: admin.pages("tokens")), as_json=as_json)


@command.command()
@click.argument("token_id")
@remotable
def revoke(settings: Settings, token_id: str, as_json: bool) -> None:
    """End a token, for good; it holds when the command returns."""
    print_record(ask(settings, lambda admin: admin.post("tokens", token_id, "revoke")), as_json=as_json)
