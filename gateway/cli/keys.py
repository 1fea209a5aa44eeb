"""`gateway keys`: create · list · show · edit · rotate · revoke."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Unpack

import click

from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import KeyRecord, NewKey
from gateway.cli.names import known_models
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.people_session import PeopleSession, run_people
from gateway.cli.server_option import remotable
from gateway.cli.session import Session, change, run
from gateway.cli.values import AMOUNT, COUNT, DURATION, FUTURE, NAMES, PAST, PERIODS, NamesType
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
    for option in reversed(
        [
            click.option("--name", metavar="N", help="What it is for."),
            click.option("--rpm", type=COUNT, metavar="N", help="Requests per minute."),
            click.option("--tpm", type=COUNT, metavar="N", help="Tokens per minute."),
            click.option("--concurrency", type=COUNT, metavar="N", help="Calls at the same time."),
            click.option("--models", type=NAMES, metavar="M,…", help="The only models it may use."),
            click.option("--budget", type=AMOUNT, metavar="AMOUNT", help="What it may spend, in all or in a period."),
            click.option("--every", type=click.Choice(PERIODS), help="The period of the budget, in UTC."),
            click.option(
                "--expires", type=FUTURE, metavar="WHEN", help="An RFC 3339 time, or a duration: 30d, 12h, 45m."
            ),
            click.option("--max-cost", type=AMOUNT, metavar="AMOUNT", help="The most that one call may hold."),
            click.option("--endpoints", type=NAMES, metavar="E,…", help="The only endpoints it may call."),
            click.option(
                "--addresses", type=NAMES, metavar="CIDR,…", help="The only client addresses it may be used from."
            ),
        ]
    ):
        function = option(function)
    return function


@command.command()
@click.argument("account")
@_settings
@click.option(
    "--response-headers",
    type=KeyHeaders(),
    metavar="cost",
    help="Headers that its answers have whatever [server] response_headers says. A key can ask for cost.",
)
@click.option("--show-cost", is_flag=True, help="The old name of --response-headers cost.")
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
    show_cost: bool,
    as_json: bool,
    **limits: Unpack[KeyLimits],
) -> None:
    """Make a key and print it, alone, once: nobody can show it again."""
    if show_cost:
        note("--show-cost is an old name that the next release refuses; use --response-headers cost")
    if (models := limits.get("models")) is not None:
        limits["models"] = known_models(settings, models)
    options = {"name": name or "", "show_cost": show_cost or bool(response_headers), **limits}
    if email is None:
        key = change(settings, lambda session: session.create_key(session.actor, account, **options))
    else:
        key = run_people(settings, lambda session: session.create_key(email, account, **options))
    _print_new(key, key.json_form(), as_json=as_json)


@command.command("list")
@click.argument("account", required=False)
@click.option("--unused", type=PAST, metavar="WHEN", help="Only active keys that were not used since: 30d, or a time.")
@click.option("--user", "email", metavar="EMAIL", help="Only the keys of this user, in the accounts of the user.")
@remotable
def list_(settings: Settings, account: str | None, unused: datetime | None, email: str | None, as_json: bool) -> None:
    """The keys of ACCOUNT, or of all accounts, oldest first."""
    if email is not None and unused is not None:
        raise click.UsageError("--user and --unused cannot be used together")

    async def work(session: Session) -> list[KeyRecord]:
        if unused is None:
            return await session.keys.list(account)
        return await session.key_editor.unused(account, unused)

    async def of_user(session: PeopleSession) -> list[KeyRecord]:
        user_id = await session.user_id(email or "")
        return await session.people.member_keys.list(session.actor, user_id, account or "")

    keys = run(settings, work) if email is None else run_people(settings, of_user)
    print_rows(COLUMNS, [key.json_form() for key in keys], as_json=as_json)


@command.command()
@click.argument("key_id")
@remotable
def show(settings: Settings, key_id: str, as_json: bool) -> None:
    """One key, without its text."""
    print_record(run(settings, lambda session: session.key_editor.show(key_id)).json_form(), as_json=as_json)


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
    if (models := limits.get("models")) is not None:
        limits["models"] = known_models(settings, models)
    names = [setting.replace("-", "_") for setting in clear or ()]

    async def work(session: Session) -> KeyRecord:
        return await session.key_changes.edit(session.actor, key_id, name=name, clear=names, **limits)

    print_record(change(settings, work).json_form(), as_json=as_json)


@command.command()
@click.argument("key_id")
@click.option(
    "--overlap", type=DURATION, default="24h", show_default=True, metavar="DURATION", help="How long both keys work."
)
@remotable
def rotate(settings: Settings, key_id: str, overlap: timedelta, as_json: bool) -> None:
    """Make a new key with the settings of KEY_ID, which expires after the overlap; print the new one, alone, once."""
    rotated = change(settings, lambda session: session.rotate_key(session.actor, key_id, overlap=overlap))
    expires = rotated.old.json_form()["expires"]
    note(f"{key_id} expires at {expires}")
    replaced = {"replaces": key_id, "old_expires": expires}
    _print_new(rotated.new, rotated.new.json_form() | replaced, as_json=as_json)


@command.command()
@click.argument("key_id")
@remotable
def revoke(settings: Settings, key_id: str, as_json: bool) -> None:
    """End a key, for good; it holds when the command returns."""
    print_record(
        change(settings, lambda session: session.key_admin.revoke(session.actor, key_id)).json_form(), as_json=as_json
    )


def _print_new(key: NewKey, form: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(form)
    else:
        note(f"{key.id} of account {key.account}; keep the key, it is shown only now")
        click.echo(key.text)
