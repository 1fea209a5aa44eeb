"""Changes of accounts, each with its event in the audit trail. Amounts are nano units."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypedDict, Unpack

from gateway.accounts.accounts import Account, Accounts
from gateway.admin.actor import Actor
from gateway.admin.audit_event import changes, new_event
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import format_amount
from gateway.errors import AlreadyExists, NotFound
from gateway.ledger import Credited

DEFAULT_GROUP = "default"


class CreditOptions(TypedDict, total=False):
    """What a credit may have beside its amount."""

    operation: str | None  # the id with which a repeat is recognised
    note: str
    allow_negative: bool
    force: bool  # take also what running calls hold, or what the account lacks


class AccountAdmin:
    """What operators do with accounts."""

    def __init__(self, accounts: Accounts, outbox: AuditOutbox) -> None:
        self._accounts = accounts
        self._outbox = outbox

    async def create(self, actor: Actor, name: str, *, group: str = DEFAULT_GROUP, balance: int = 0) -> Account:
        """Open an account; AlreadyExists if there is one.

        A balance needs the scope `credits`, too, and so does another group than the default: it has prices.
        """
        actor.require("accounts")
        if balance or group != DEFAULT_GROUP:
            actor.require("credits")
        account = await self._accounts.create(name, group=group, balance=balance)
        after = {"group": group, "balance": format_amount(balance)}
        await self._record(actor, "create", name, {}, after)
        return account

    async def require_free(self, name: str) -> None:
        """AlreadyExists if there is an account of this name."""
        if await self._is_there(name):
            raise AlreadyExists(f"account {name!r} exists already")

    async def credit(self, actor: Actor, name: str, amount: int, **options: Unpack[CreditOptions]) -> Credited:
        """Add to the balance, or with `allow_negative` take away; a repeated operation changes nothing."""
        actor.require("credits", name)
        note, operation = options.get("note", ""), options.get("operation")
        await self._accounts.show(name)
        credited = await self._accounts.credit(name, amount, **options)
        if credited.status != "repeated":
            after: dict[str, Any] = {"amount": format_amount(amount)}
            if operation is not None:
                after["operation"] = operation
            if note:
                after["note"] = note
            await self._record(actor, "credit", name, {}, after)
        return credited

    async def disable(self, actor: Actor, name: str) -> Account:
        """Refuse every further call of the account, and cut its running calls."""
        return await self._change(actor, "disable", name, lambda: self._accounts.disable(name))

    async def enable(self, actor: Actor, name: str) -> Account:
        """Undo `disable`."""
        return await self._change(actor, "enable", name, lambda: self._accounts.enable(name))

    async def move(self, actor: Actor, name: str, group: str) -> Account:
        """Put the account into another group; needs the scope `credits`, too, because groups have prices."""
        actor.require("credits")
        return await self._change(actor, "move", name, lambda: self._accounts.move(name, group))

    async def allow(self, actor: Actor, name: str, models: Iterable[str]) -> Account:
        """Allow models regardless of the group; undoes `deny`."""
        names = list(models)
        return await self._change(actor, "allow", name, lambda: self._accounts.allow(name, names))

    async def deny(self, actor: Actor, name: str, models: Iterable[str]) -> Account:
        """Deny models regardless of the group; undoes `allow`."""
        names = list(models)
        return await self._change(actor, "deny", name, lambda: self._accounts.deny(name, names))

    async def _change(self, actor: Actor, action: str, name: str, change: Callable[[], Awaitable[Account]]) -> Account:
        actor.require("accounts")  # of the site: the account's own programs do not undo what the operator decided
        before = await self._accounts.show(name)
        after = await change()
        await self._record(actor, action, name, *changes(_rules(before), _rules(after)))
        return after

    async def _is_there(self, name: str) -> bool:
        try:
            await self._accounts.show(name)
        except NotFound:
            return False
        return True

    async def _record(
        self, actor: Actor, action: str, name: str, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        event = new_event(actor, f"accounts.{action}", f"account:{name}", account=name, before=before, after=after)
        await self._outbox.add(event)


def _rules(account: Account) -> dict[str, Any]:
    return {
        "group": account.group,
        "state": account.state,
        "allowed": account.allowed,
        "denied": account.denied,
    }
