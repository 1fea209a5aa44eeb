"""`gateway notify`: test · list · retry · threshold · secret."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import click
from msgspec import structs

from gateway.admin.actor import command_line, login_name
from gateway.admin.notifications import Threshold, send_test
from gateway.amounts import format_amount
from gateway.cli.output import note, print_json, print_record, print_rows
from gateway.cli.server_option import remotable
from gateway.cli.session import change, either, run
from gateway.cli.values import AMOUNT, WholeNumber
from gateway.notifications.signatures import new_secret

if TYPE_CHECKING:
    from gateway.cli.admin_client import AdminClient
    from gateway.cli.store_session import StoreSession
    from gateway.config.settings import Settings

Rows = list[dict[str, Any]]

COLUMNS = ("event", "type", "account", "channel", "state", "attempts", "next_attempt", "failed", "problem")


@click.group()
def command() -> None:
    """Events for operators and owners: a test, what waits, and thresholds of accounts."""


@command.command()
@remotable
@click.pass_context
def test(ctx: click.Context, settings: Settings, as_json: bool) -> None:
    """Send an event of the type `test` to the webhook and to `mail_to`, and show the answers."""

    def here() -> Rows:
        return [structs.asdict(result) for result in asyncio.run(send_test(command_line(login_name()), settings))]

    async def there(client: AdminClient) -> Rows:
        found: Rows = (await client.post("notifications", "test"))["data"]
        return found

    rows = either(here, there)
    print_rows(("channel", "is_taken", "answer"), rows, as_json=as_json)
    ctx.exit(0 if all(row["is_taken"] for row in rows) else 1)


@command.command("list")
@click.option("--limit", type=WholeNumber(1, 10_000), default=100, show_default=True, help="Most of each state.")
@remotable
def list_(settings: Settings, limit: int, as_json: bool) -> None:
    """Deliveries that wait for an attempt, then those that were given up, with the reason."""

    async def there(client: AdminClient) -> Rows:
        found: Rows = (await client.get("notifications", limit=limit))["data"]
        return found

    rows = either(lambda: run(settings, lambda session: session.notifications.list(session.actor, most=limit)), there)
    print_rows(COLUMNS, rows, as_json=as_json)


@command.command()
@click.argument("event_id", required=False, default="", metavar="[EVENT]")
@remotable
def retry(settings: Settings, event_id: str, as_json: bool) -> None:
    """Deliver again what was given up: of EVENT, or all."""

    async def there(client: AdminClient) -> int:
        body = {"event": event_id} if event_id else {}
        return int((await client.post("notifications", "retry", body=body))["queued"])

    count = either(
        lambda: change(settings, lambda session: session.notifications.retry(session.actor, event_id)), there
    )
    if as_json:
        print_json({"queued": count})
    note(f"deliveries queued again: {count}")


@command.command()
@click.argument("account")
@click.argument("amount", type=AMOUNT, required=False)
@click.option("--clear", is_flag=True, help="Use the threshold of the configuration.")
@remotable
def threshold(settings: Settings, account: str, amount: int | None, clear: bool, as_json: bool) -> None:
    """Send `balance.low` when the account's balance above its floor is AMOUNT or less; 0: never.

    Without AMOUNT it shows the threshold.
    """
    if clear and amount is not None:
        raise click.UsageError("give AMOUNT or --clear")

    changes = clear or amount is not None

    async def work(session: StoreSession) -> Threshold:
        if changes:
            return await session.notifications.set_threshold(session.actor, account, amount)
        return await session.notifications.threshold(session.actor, account)

    async def there(client: AdminClient) -> dict[str, Any]:
        path = ("accounts", account, "threshold")
        body = {"balance_low": None if amount is None else format_amount(amount)}
        reply = await (client.send("PUT", *path, body=body) if changes else client.send("GET", *path))
        form: dict[str, Any] = reply.document
        return form

    form = either(lambda: (change if changes else run)(settings, work).json_form(), there)
    print_record(form, as_json=as_json)


@command.command()
def secret() -> None:
    """Print a new secret for `notify.secrets`; put it into a file or an environment variable."""
    click.echo(new_secret())
