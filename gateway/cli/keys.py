"""`gateway keys`: create · list · revoke."""

from __future__ import annotations

from typing import Any, Unpack

import click

from gateway.accounts.keys import KeyLimits
from gateway.cli.configuration import configured
from gateway.cli.model_names import known_models
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.session import change, run
from gateway.cli.values import AMOUNT, COUNT, FUTURE, NAMES, NamesType
from gateway.config.settings import Settings

COLUMNS = (
    "id",
    "account",
    "name",
    "last4",
    "state",
    "expires",
    "rpm",
    "tpm",
    "concurrency",
    "models",
    "budget",
    "spent",
)

KEY_HEADERS = ("cost",)


class KeyHeaders(NamesType):
    """Names of response headers that a key can ask for, with commas between them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> list[str]:
        """Split, and fail with the names that a key can ask for."""
        names = super().convert(value, param, ctx)
        for name in names:
            if name not in KEY_HEADERS:
                known = ", ".join(KEY_HEADERS)
                self.fail(f"{name!r} is no header that a key can ask for; known: {known}", param, ctx)
        return names


@click.group()
def command() -> None:
    """API keys: made once, shown once, revoked for good."""


@command.command()
@click.argument("account")
@click.option("--name", default="", metavar="N", help="What it is for.")
@click.option("--rpm", type=COUNT, metavar="N", help="Requests per minute.")
@click.option("--tpm", type=COUNT, metavar="N", help="Tokens per minute.")
@click.option("--concurrency", type=COUNT, metavar="N", help="Calls at the same time.")
@click.option("--models", type=NAMES, metavar="M,…", help="The only models it may use.")
@click.option("--budget", type=AMOUNT, metavar="AMOUNT", help="What it may spend in all.")
@click.option("--expires", type=FUTURE, metavar="WHEN", help="An RFC 3339 time, or a duration: 30d, 12h, 45m.")
@click.option(
    "--response-headers",
    type=KeyHeaders(),
    metavar="cost",
    help="Headers that its answers have whatever [server] response_headers says. A key can ask for cost.",
)
@click.option("--show-cost", is_flag=True, help="The old name of --response-headers cost.")
@configured
def create(
    settings: Settings,
    account: str,
    name: str,
    response_headers: list[str] | None,
    show_cost: bool,
    as_json: bool,
    **limits: Unpack[KeyLimits],
) -> None:
    """Make a key and print it, alone, once: nobody can show it again."""
    if show_cost:
        note("--show-cost is an old name that the next release refuses; use --response-headers cost")
    if (models := limits.get("models")) is not None:
        limits["models"] = known_models(settings, models)
    shown = show_cost or bool(response_headers)
    key = change(settings, lambda session: session.create_key(account, name=name, show_cost=shown, **limits))
    if as_json:
        print_json(key.json_form())
    else:
        note(f"{key.id} of account {key.account}; keep the key, it is shown only now")
        click.echo(key.text)


@command.command("list")
@click.argument("account", required=False)
@configured
def list_(settings: Settings, account: str | None, as_json: bool) -> None:
    """The keys of ACCOUNT, or of all accounts, oldest first."""
    keys = [key.json_form() for key in run(settings, lambda session: session.keys.list(account))]
    print_rows(COLUMNS, keys, as_json=as_json)


@command.command()
@click.argument("key_id")
@configured
def revoke(settings: Settings, key_id: str, as_json: bool) -> None:
    """End a key, for good; it holds when the command returns."""
    print_record(
        change(settings, lambda session: session.key_admin.revoke(session.actor, key_id)).json_form(), as_json=as_json
    )
