"""`gateway accounts`: create · list · show · credit · refund · limit · price · move · allow · deny and others.

`statement` and `statements` are in a file of their own.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any, Unpack

import click

from gateway.accounts.accounts import check_note
from gateway.admin.account_limits import FIELDS, Limits
from gateway.amounts import format_amount
from gateway.cli import statement
from gateway.cli.admin_requests import AdminReply, AdminRequests, cleared, written
from gateway.cli.ask import ask
from gateway.cli.output import note, print_record, print_rows
from gateway.cli.server_option import remotable
from gateway.cli.values import AMOUNT, AMOUNTS, COUNT, FACTOR, NAMES

if TYPE_CHECKING:
    from gateway.config.settings import Settings

COLUMNS = ("name", "group", "state", "balance", "held", "allowed", "denied", "created")


@click.group()
def command() -> None:
    """Accounts: who pays, in which group, and which models they may use."""


command.add_command(statement.command)
command.add_command(statement.list_command)


@command.command()
@click.argument("name")
@click.option("--group", default="default", show_default=True, metavar="G", help="A group of the configuration.")
@click.option("--balance", type=AMOUNT, default="0", metavar="AMOUNT", help="What it starts with; default 0.")
@remotable
def create(settings: Settings, name: str, group: str, balance: int, as_json: bool) -> None:
    """Open an account."""

    body = {"name": name, "group": group} | written({"balance": balance} if balance else {})
    print_record(ask(settings, lambda admin: admin.post("accounts", body=body)), as_json=as_json)


@command.command("list")
@remotable
def list_(settings: Settings, as_json: bool) -> None:
    """All accounts, by name."""
    print_rows(COLUMNS, ask(settings, lambda admin: admin.pages("accounts")), as_json=as_json)


@command.command()
@click.argument("name")
@remotable
def show(settings: Settings, name: str, as_json: bool) -> None:
    """One account."""
    print_record(ask(settings, lambda admin: admin.get("accounts", name)), as_json=as_json)


@command.command(context_settings={"ignore_unknown_options": True})  # or -5 would be taken for an option
@click.argument("name")
@click.argument("amount", type=AMOUNT)
@click.option("--id", "operation", metavar="OPERATION", help="A name for this credit: repeating it changes nothing.")
@click.option("--note", "text", default="", metavar="TEXT", help="Why; it is stored in the ledger line.")
@click.option("--allow-negative", is_flag=True, help="Let AMOUNT take money away.")
@click.option("--force", is_flag=True, help="Also take money that running calls hold, or that the account lacks.")
@remotable
def credit(
    settings: Settings,
    name: str,
    amount: int,
    operation: str | None,
    text: str,
    allow_negative: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Add AMOUNT to the balance."""

    check_note(text)
    body = {"amount": format_amount(amount), "note": text, "allow_negative": allow_negative, "force": force}

    async def work(admin: AdminRequests) -> tuple[AdminReply, dict[str, Any]]:
        path = ("accounts", name, "credits")
        reply = await admin.send("POST", *path, body=body, operation=operation or new_operation())
        return reply, await admin.get("accounts", name)

    reply, form = ask(settings, work)
    if reply.is_repeat:
        note(f"operation {operation} was done before, with {reply.document['amount']}; nothing was changed")
    if as_json:
        form |= {"credited": format_amount(amount), "repeated": reply.is_repeat}
    print_record(form, as_json=as_json)


@command.command()
@click.argument("name", metavar="ACCOUNT")
@click.argument("request_id")
@click.argument("amount", type=AMOUNT, required=False)
@click.option("--note", "text", default="", metavar="TEXT", help="Why; it is stored in the ledger line.")
@click.option("--id", "operation", metavar="OPERATION", help="A name for this refund: repeating it changes nothing.")
@remotable
def refund(
    settings: Settings,
    name: str,
    request_id: str,
    amount: int | None,
    text: str,
    operation: str | None,
    as_json: bool,
) -> None:
    """Give back AMOUNT of what a request was charged; without AMOUNT all that is left of it."""

    check_note(text)
    body = {"request_id": request_id, "note": text, **written({"amount": amount})}

    async def work(admin: AdminRequests) -> tuple[AdminReply, dict[str, Any]]:
        path = ("accounts", name, "refunds")
        reply = await admin.send("POST", *path, body=body, operation=operation or new_operation())
        return reply, await admin.get("accounts", name)

    reply, form = ask(settings, work)
    refunded = reply.document
    if reply.is_repeat:
        note(f"operation {operation} was done before, with {refunded['amount']}; nothing was changed")
    given = {"refunded": refunded["amount"], "operation": refunded["operation"], "repeated": reply.is_repeat}
    print_record(form | given, as_json=as_json)


@command.command()
@click.argument("name", metavar="ACCOUNT")
@click.option("--floor", type=AMOUNT, metavar="AMOUNT", help="The lowest balance; -100 is a credit line of 100.")
@click.option("--rpm", type=COUNT, metavar="N", help="Requests per minute.")
@click.option("--tpm", type=COUNT, metavar="N", help="Tokens per minute.")
@click.option("--concurrency", type=COUNT, metavar="N", help="Calls at the same time.")
@click.option("--monthly", type=AMOUNT, metavar="AMOUNT", help="The most that calls may cost in a calendar month.")
@click.option("--max-session-cost", type=AMOUNT, metavar="AMOUNT", help="The most that a session may cost in a day.")
@click.option("--clear", type=NAMES, metavar="LIMIT,…", help="Remove these limits: names of the options.")
@remotable
def limit(settings: Settings, name: str, clear: list[str] | None, as_json: bool, **limits: Unpack[Limits]) -> None:
    """Set what ACCOUNT may use: its credit line, and limits beside those of its group."""
    if not clear and all(value is None for value in limits.values()):
        raise click.UsageError("name a limit to set or to clear")
    body = cleared(clear or (), limits, known=FIELDS, what="no limit of an account")
    print_record(ask(settings, lambda admin: admin.patch("accounts", name, "limits", body=body)), as_json=as_json)


@command.command()
@click.argument("name", metavar="ACCOUNT")
@click.argument("model")
@click.option("--set", "amounts", type=AMOUNTS, metavar="AMOUNT=…,…", help="Amounts in place of the list price's.")
@click.option("--factor", type=FACTOR, metavar="F", help="A factor of the list price, in place of the group's.")
@click.option("--clear", is_flag=True, help="The list price and the group's factor again.")
@remotable
def price(
    settings: Settings,
    name: str,
    model: str,
    amounts: dict[str, int] | None,
    factor: int | None,
    clear: bool,
    as_json: bool,
) -> None:
    """Give ACCOUNT a price of its own for MODEL, from the next call on."""
    if (amounts is not None) + (factor is not None) + clear != 1:
        raise click.UsageError("name one of --set, --factor and --clear")
    path = ("accounts", name, "prices", model)
    if clear:
        print_record(ask(settings, lambda admin: admin.delete(*path)), as_json=as_json)
        return
    body: dict[str, Any] = {"factor": format_amount(factor)} if factor is not None else {}
    if amounts is not None:
        body["amounts"] = {unit: format_amount(amount) for unit, amount in amounts.items()}
    print_record(ask(settings, lambda admin: admin.put(*path, body=body)), as_json=as_json)


@command.command()
@click.argument("name")
@remotable
def disable(settings: Settings, name: str, as_json: bool) -> None:
    """Refuse every further call of the account."""
    print_record(ask(settings, lambda admin: admin.post("accounts", name, "disable")), as_json=as_json)


@command.command()
@click.argument("name")
@remotable
def enable(settings: Settings, name: str, as_json: bool) -> None:
    """Undo `disable`."""
    print_record(ask(settings, lambda admin: admin.post("accounts", name, "enable")), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("group")
@remotable
def move(settings: Settings, name: str, group: str, as_json: bool) -> None:
    """Put the account into GROUP of the configuration; the next request is judged by it."""
    body = {"group": group}
    print_record(ask(settings, lambda admin: admin.post("accounts", name, "move", body=body)), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@remotable
def allow(settings: Settings, name: str, models: tuple[str, ...], as_json: bool) -> None:
    """Allow MODELs to the account, regardless of its group; undoes `deny`."""
    body = {"models": list(models)}
    print_record(ask(settings, lambda admin: admin.post("accounts", name, "allow", body=body)), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@remotable
def deny(settings: Settings, name: str, models: tuple[str, ...], as_json: bool) -> None:
    """Deny MODELs to the account, regardless of its group; undoes `allow`."""
    body = {"models": list(models)}
    print_record(ask(settings, lambda admin: admin.post("accounts", name, "deny", body=body)), as_json=as_json)


def new_operation() -> str:
    """A name for a movement of money that has none."""
    return f"cli-{secrets.token_hex(12)}"
