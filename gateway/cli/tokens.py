"""`gateway tokens`: create · list · revoke."""

from __future__ import annotations

from datetime import datetime

import click

from gateway.admin.actor import SCOPES
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.people_session import run_people
from gateway.cli.server_option import remotable
from gateway.cli.values import FUTURE, NAMES
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
    new = run_people(
        settings,
        lambda session: session.people.tokens.create(session.actor, name, scopes, account=account, expires=expires),
    )
    if as_json:
        print_json(new.json_form())
    else:
        note(f"{new.record.id}; keep the token, it is shown only now")
        click.echo(new.text)


@command.command("list")
@remotable
def list_(settings: Settings, as_json: bool) -> None:
    """All tokens, newest first."""
    found = run_people(settings, lambda session: session.people.tokens.list(session.actor))
    print_rows(COLUMNS, [token.json_form() for token in found], as_json=as_json)


@command.command()
@click.argument("token_id")
@remotable
def revoke(settings: Settings, token_id: str, as_json: bool) -> None:
    """End a token, for good; it holds when the command returns."""
    token = run_people(settings, lambda session: session.people.tokens.revoke(session.actor, token_id))
    print_record(token.json_form(), as_json=as_json)
