"""`gateway keys`: create · list · find · addresses · show · edit · rotate · revoke."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Unpack

import click

from gateway.accounts.key_settings import CLEARABLE, KEY_SETTINGS, KeyLimits, Kind
from gateway.cli.admin_requests import cleared, written
from gateway.cli.ask import ask
from gateway.cli.key_search import find_here, find_there, read_wanted
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.root import Failure
from gateway.cli.server_option import current_server, remotable
from gateway.cli.session import either, run
from gateway.cli.values import AMOUNT, COUNT, DURATION, FUTURE, NAMES, PAST, PERIODS, NamesType

if TYPE_CHECKING:
    from gateway.config.settings import Settings

COLUMNS = (
    "id",
    "account",
    "name",
    "user",
    "last4",
    "state",
    "expires",
    "rpm",
    "tpm",
    "concurrency",
    "models",
    "budget",
    "every",
    "spent",
    "last_used",
)

KEY_HEADERS = ("cost",)
#: The type and the metavar of an option, by the kind of its setting.
KINDS: dict[Kind, tuple[click.ParamType[Any], str | None]] = {
    "count": (COUNT, "N"),
    "amount": (AMOUNT, "AMOUNT"),
    "period": (click.Choice(PERIODS), None),
    "models": (NAMES, "M,…"),
    "endpoints": (NAMES, "E,…"),
    "networks": (NAMES, "CIDR,…"),
    "moment": (FUTURE, "WHEN"),
}


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


def _settings(function: Any) -> Any:
    """The options of a key's settings, for `create` and `edit`."""
    for setting in reversed(KEY_SETTINGS):
        kind, metavar = KINDS[setting.kind]
        option = f"--{setting.name.replace('_', '-')}"
        function = click.option(option, type=kind, metavar=metavar, help=setting.help)(function)
    return click.option("--name", metavar="N", help="What it is for.")(function)


@command.command()
@click.argument("account")
@_settings
@click.option(
    "--response-headers",
    type=KeyHeaders(),
    metavar="cost",
    help="Headers that its answers have whatever [server] response_headers says. A key can ask for cost.",
)
@click.option(
    "--user", "email", metavar="EMAIL", help="The member of ACCOUNT whose key it is; without it, a service key."
)
@remotable
def create(
    settings: Settings,
    account: str,
    name: str | None,
    email: str | None,
    response_headers: list[str] | None,
    as_json: bool,
    **limits: Unpack[KeyLimits],
) -> None:
    """Make a key and print it, alone, once: nobody can show it again."""
    body = written({"name": name or "", **limits})
    if response_headers:
        body["response_headers"] = response_headers
    path = ("accounts", account, "keys") if email is None else ("accounts", account, "members", email, "keys")
    _print_new(ask(settings, lambda admin: admin.post(*path, body=body)), as_json=as_json)


@command.command("list")
@click.argument("account", required=False)
@click.option("--unused", type=PAST, metavar="WHEN", help="Only active keys that were not used since: 30d, or a time.")
@click.option("--user", "email", metavar="EMAIL", help="Only the keys of this user, in the accounts of the user.")
@remotable
def list_(settings: Settings, account: str | None, unused: datetime | None, email: str | None, as_json: bool) -> None:
    """The keys of ACCOUNT, or of all accounts, oldest first."""
    if email is not None and unused is not None:
        raise click.UsageError("--user and --unused cannot be used together")
    if email is not None:
        of_user = ("accounts", account, "members", email, "keys") if account else ("users", email, "keys")
        keys = ask(settings, lambda admin: admin.get(*of_user))["data"]
    else:
        path = ("accounts", account, "keys") if account else ("keys",)
        since = unused.isoformat() if unused is not None else None
        keys = ask(settings, lambda admin: admin.pages(*path, unused_since=since))
    print_rows(COLUMNS, keys, as_json=as_json)


@command.command(context_settings={"ignore_unknown_options": True})  # the last characters of a key may be -abc
@click.argument("text", required=False)
@click.option(
    "--pepper",
    metavar="REF",
    help="With --server: the pepper, as env:NAME or file:PATH, to look for a whole key by its hash.",
)
@remotable
def find(settings: Settings, text: str | None, pepper: str | None, as_json: bool) -> None:
    """The key that has this TEXT: a whole key, or its last four characters. Without TEXT it is read unseen."""
    if pepper is not None and current_server() is None:
        raise click.UsageError("--pepper goes with --server")
    wanted = read_wanted(text)
    keys = either(
        lambda: run(settings, lambda session: find_here(session, wanted)),
        lambda client: find_there(client, wanted, pepper),
    )
    if not keys:
        raise Failure("no key has this text")
    print_rows(COLUMNS, keys, as_json=as_json)


@command.command()
@click.argument("key_id")
@remotable
def show(settings: Settings, key_id: str, as_json: bool) -> None:
    """One key, without its text."""
    print_record(ask(settings, lambda admin: admin.get("keys", key_id)), as_json=as_json)


@command.command()
@click.argument("key_id")
@remotable
def addresses(settings: Settings, key_id: str, as_json: bool) -> None:
    """The addresses that a key was used from, the last used first."""

    found = ask(settings, lambda admin: admin.get("keys", key_id, "addresses"))
    print_rows(("address", "first", "last"), found["data"], as_json=as_json)


@command.command()
@click.argument("key_id")
@_settings
@click.option("--clear", type=NAMES, metavar="SETTING,…", help="Remove these settings: names of the options.")
@remotable
def edit(
    settings: Settings,
    key_id: str,
    name: str | None,
    clear: list[str] | None,
    as_json: bool,
    **limits: Unpack[KeyLimits],
) -> None:
    """Change the settings of a key; they hold for its next call."""
    if name is None and not clear and all(value is None for value in limits.values()):
        raise click.UsageError("name a setting to change or to clear")
    body = cleared([setting.replace("-", "_") for setting in clear or ()], {"name": name, **limits}, known=CLEARABLE)
    print_record(ask(settings, lambda admin: admin.patch("keys", key_id, body=body)), as_json=as_json)


@command.command()
@click.argument("key_id")
@click.option(
    "--overlap", type=DURATION, default="24h", show_default=True, metavar="DURATION", help="How long both keys work."
)
@remotable
def rotate(settings: Settings, key_id: str, overlap: timedelta, as_json: bool) -> None:
    """Make a new key with the settings of KEY_ID, which expires after the overlap; print the new one, alone, once."""
    body = {"overlap": int(overlap.total_seconds())}
    form = ask(settings, lambda admin: admin.post("keys", key_id, "rotate", body=body))
    note(f"{key_id} expires at {form['old_expires']}")
    _print_new(form, as_json=as_json)


@command.command()
@click.argument("key_id")
@remotable
def revoke(settings: Settings, key_id: str, as_json: bool) -> None:
    """End a key, for good; it holds when the command returns."""
    print_record(ask(settings, lambda admin: admin.post("keys", key_id, "revoke")), as_json=as_json)


def _print_new(form: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(form)
    else:
        note(f"{form['id']} of account {form['account']}; keep the key, it is shown only now")
        click.echo(form["key"])
