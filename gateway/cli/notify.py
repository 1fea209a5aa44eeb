"""`gateway notify`: test · list · retry · threshold · secret."""

from __future__ import annotations

import asyncio

import click
from msgspec import structs

from gateway.admin.actor import command_line
from gateway.admin.notifications import Threshold, send_test
from gateway.cli.configuration import configured
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.session import Session, change, login_name, run
from gateway.cli.values import AMOUNT
from gateway.config.settings import Settings
from gateway.notifications.signatures import new_secret

COLUMNS = ("event", "type", "account", "channel", "state", "attempts", "next_attempt", "failed", "problem")


@click.group()
def command() -> None:
    """Events for operators and owners: a test, what waits, and thresholds of accounts."""


@command.command()
@configured
@click.pass_context
def test(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """Send an event of the type `test` to the webhook and to `mail_to`, and show the answers."""
    results = asyncio.run(send_test(command_line(login_name()), settings))
    rows = [structs.asdict(result) for result in results]
    print_rows(("channel", "is_taken", "answer"), rows, as_json=as_json)
    ctx.exit(0 if all(result.is_taken for result in results) else 1)


@command.command("list")
@click.option("--limit", type=click.IntRange(1, 10_000), default=100, show_default=True, help="Most of each state.")
@configured
def list_(settings: Settings, limit: int, as_json: bool) -> None:
    """Deliveries that wait for an attempt, then those that were given up, with the reason."""
    rows = run(settings, lambda session: session.notifications.list(session.actor, most=limit))
    print_rows(COLUMNS, rows, as_json=as_json)


@command.command()
@click.argument("event_id", required=False, default="", metavar="[EVENT]")
@configured
def retry(settings: Settings, event_id: str, as_json: bool) -> None:
    """Deliver again what was given up: of EVENT, or all."""
    count = change(settings, lambda session: session.notifications.retry(session.actor, event_id))
    if as_json:
        print_json({"queued": count})
    note(f"deliveries queued again: {count}")


@command.command()
@click.argument("account")
@click.argument("amount", type=AMOUNT, required=False)
@click.option("--clear", is_flag=True, help="Use the threshold of the configuration.")
@configured
def threshold(settings: Settings, account: str, amount: int | None, clear: bool, as_json: bool) -> None:
    """Send `balance.low` when the account's balance above its floor is AMOUNT or less; 0: never.

    Without AMOUNT it shows the threshold.
    """
    if clear and amount is not None:
        raise click.UsageError("give AMOUNT or --clear")

    async def work(session: Session) -> Threshold:
        if clear or amount is not None:
            return await session.notifications.set_threshold(session.actor, account, amount)
        return await session.notifications.threshold(session.actor, account)

    found = change(settings, work) if clear or amount is not None else run(settings, work)
    print_record(found.json_form(), as_json=as_json)


@command.command()
def secret() -> None:
    """Print a new secret for `notify.secrets`; put it into a file or an environment variable."""
    click.echo(new_secret())
