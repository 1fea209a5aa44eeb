"""`gateway accounts`: create · list · show · credit · refund · limit · price · move · allow · deny and others.

`statement` and `statements` are in a file of their own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Unpack

import click

from gateway.accounts.accounts import Account
from gateway.admin.account_limits import Limits
from gateway.amounts import NANO, format_amount
from gateway.billing.price_terms import OwnPrice
from gateway.cli import statement
from gateway.cli.names import known_group, known_models
from gateway.cli.output import note, print_record, print_rows
from gateway.cli.server_option import remotable
from gateway.cli.session import Session, change, run
from gateway.cli.values import AMOUNT, AMOUNTS, COUNT, FACTOR, NAMES
from gateway.config.settings import Settings
from gateway.ledger import Credited
from gateway.ledger.refund import Refunded

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
    known_group(settings, group)

    async def work(session: Session) -> Account:
        created = await session.account_admin.create(session.actor, name, group=group, balance=balance)
        await session.remember_accounts()
        return created

    account = change(settings, work)
    _show(account, as_json=as_json)


@command.command("list")
@remotable
def list_(settings: Settings, as_json: bool) -> None:
    """All accounts, by name."""
    accounts = [account.json_form() for account in run(settings, lambda session: session.accounts.list())]
    print_rows(COLUMNS, accounts, as_json=as_json)


@command.command()
@click.argument("name")
@remotable
def show(settings: Settings, name: str, as_json: bool) -> None:
    """One account."""
    _show(run(settings, lambda session: session.accounts.show(name)), as_json=as_json)


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

    async def work(session: Session) -> tuple[Credited, Account]:
        credited = await session.account_admin.credit(
            session.actor,
            name,
            amount,
            operation=operation,
            note=text,
            allow_negative=allow_negative,
            force=force,
        )
        return credited, await session.accounts.show(name)

    credited, account = change(settings, work)
    if credited.status == "repeated":
        note(f"operation {operation} was done before, with {format_amount(credited.amount)}; nothing was changed")
    form = account.json_form()
    if as_json:
        form |= {"credited": format_amount(amount), "repeated": credited.status == "repeated"}
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

    async def work(session: Session) -> tuple[Refunded, Account]:
        refunded = await session.money.refund(session.actor, name, request_id, amount, operation=operation, note=text)
        return refunded, await session.accounts.show(name)

    refunded, account = change(settings, work)
    repeated = refunded.status == "repeated"
    if repeated:
        note(f"operation {operation} was done before, with {format_amount(refunded.amount)}; nothing was changed")
    given = {"refunded": format_amount(refunded.amount), "operation": refunded.operation, "repeated": repeated}
    print_record(account.json_form() | given, as_json=as_json)


@command.command()
@click.argument("name", metavar="ACCOUNT")
@click.option("--floor", type=AMOUNT, metavar="AMOUNT", help="The lowest balance; -100 is a credit line of 100.")
@click.option("--rpm", type=COUNT, metavar="N", help="Requests per minute.")
@click.option("--tpm", type=COUNT, metavar="N", help="Tokens per minute.")
@click.option("--concurrency", type=COUNT, metavar="N", help="Calls at the same time.")
@click.option("--monthly", type=AMOUNT, metavar="AMOUNT", help="The most that calls may cost in a calendar month.")
@click.option("--clear", type=NAMES, metavar="LIMIT,…", help="Remove these limits: names of the options.")
@remotable
def limit(settings: Settings, name: str, clear: list[str] | None, as_json: bool, **limits: Unpack[Limits]) -> None:
    """Set what ACCOUNT may use: its credit line, and limits beside those of its group."""
    if not clear and all(value is None for value in limits.values()):
        raise click.UsageError("name a limit to set or to clear")

    async def work(session: Session) -> Account:
        return await session.money.limit(session.actor, name, clear=clear or (), **limits)

    _show(change(settings, work), as_json=as_json)


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
    own = None if clear else OwnPrice(NANO if factor is None else factor, tuple(sorted((amounts or {}).items())))

    async def work(session: Session) -> Account:
        before = await session.accounts.show(name)
        # The price of a model that is gone can still be removed, also if its name is an alias of another now.
        known = model if clear and model in before.prices else known_models(settings, [model])[0]
        return await session.account_prices.set(session.actor, name, known, own)

    _show(change(settings, work), as_json=as_json)


@command.command()
@click.argument("name")
@remotable
def disable(settings: Settings, name: str, as_json: bool) -> None:
    """Refuse every further call of the account."""
    _show(change(settings, lambda session: session.account_admin.disable(session.actor, name)), as_json=as_json)


@command.command()
@click.argument("name")
@remotable
def enable(settings: Settings, name: str, as_json: bool) -> None:
    """Undo `disable`."""
    _show(change(settings, lambda session: session.account_admin.enable(session.actor, name)), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("group")
@remotable
def move(settings: Settings, name: str, group: str, as_json: bool) -> None:
    """Put the account into GROUP of the configuration; the next request is judged by it."""
    known_group(settings, group)
    _show(change(settings, lambda session: session.account_admin.move(session.actor, name, group)), as_json=as_json)


@command.command()
@click.argument("name")
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@remotable
def allow(settings: Settings, name: str, models: tuple[str, ...], as_json: bool) -> None:
    """Allow MODELs to the account, regardless of its group; undoes `deny`."""
    _rule(
        settings,
        name,
        models,
        lambda session, names: session.account_admin.allow(session.actor, name, names),
        as_json=as_json,
    )


@command.command()
@click.argument("name")
@click.argument("models", nargs=-1, required=True, metavar="MODEL…")
@remotable
def deny(settings: Settings, name: str, models: tuple[str, ...], as_json: bool) -> None:
    """Deny MODELs to the account, regardless of its group; undoes `allow`."""
    _rule(
        settings,
        name,
        models,
        lambda session, names: session.account_admin.deny(session.actor, name, names),
        as_json=as_json,
    )


def _rule(
    settings: Settings,
    name: str,
    models: tuple[str, ...],
    rule: Callable[[Session, list[str]], Awaitable[Account]],
    *,
    as_json: bool,
) -> None:
    async def work(session: Session) -> Account:
        account = await session.accounts.show(name)
        # A model that is gone from the configuration can still be taken off an account's lists.
        names = known_models(settings, models, also={*account.allowed, *account.denied})
        return await rule(session, names)

    _show(change(settings, work), as_json=as_json)


def _show(account: Account, *, as_json: bool) -> None:
    print_record(account.json_form(), as_json=as_json)
