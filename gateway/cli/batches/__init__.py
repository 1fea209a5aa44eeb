"""`gateway batches`: list · show · cancel."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from gateway.cli.ask import ask
from gateway.cli.output import print_record, print_rows
from gateway.cli.server_option import remotable
from gateway.cli.values import WholeNumber

if TYPE_CHECKING:
    from gateway.config.settings import Settings

COLUMNS = (
    "created", "id", "account", "key", "endpoint", "status", "total", "completed", "failed", "cost", "held", "max_cost"
)  # fmt: skip
MOST = 10_000


@click.group()
def command() -> None:
    """Batches of all accounts: list, show and cancel."""


@command.command("list")
@click.option("--account", metavar="A", help="Only batches of this account.")
@click.option(
    "--limit", type=WholeNumber(1, MOST), default=100, show_default=True, metavar="N", help="The newest N batches."
)
@remotable
def list_(settings: Settings, account: str | None, limit: int, as_json: bool) -> None:
    """The batches, newest first, with their progress and cost."""
    found = ask(settings, lambda admin: admin.pages("batches", most=limit, account=account))
    print_rows(COLUMNS, found, as_json=as_json)


@command.command()
@click.argument("batch_id")
@remotable
def show(settings: Settings, batch_id: str, as_json: bool) -> None:
    """One batch: its progress, cost, times, files, and what is wrong with its input."""
    print_record(ask(settings, lambda admin: admin.get("batches", batch_id)), as_json=as_json)


@command.command()
@click.argument("batch_id")
@remotable
def cancel(settings: Settings, batch_id: str, as_json: bool) -> None:
    """Cancel a batch: the lines that run are completed and charged, and no other begins."""
    print_record(ask(settings, lambda admin: admin.post("batches", batch_id, "cancel")), as_json=as_json)
