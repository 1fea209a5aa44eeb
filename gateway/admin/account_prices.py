"""Prices that accounts have of their own, each change with its event in the audit trail."""

from __future__ import annotations

import msgspec

from gateway.accounts.accounts import Account, Accounts, check_model
from gateway.admin.actor import Actor
from gateway.admin.audit_event import new_event
from gateway.admin.outbox import AuditOutbox
from gateway.amounts import MAX_AMOUNT, MAX_FACTOR, format_amount
from gateway.billing.price_terms import OwnPrice
from gateway.config.settings import AmountSettings
from gateway.config.toml_reader import suggestion
from gateway.errors import InvalidValue, NotFound
from gateway.ledger.account_terms import own_price_form
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot

MOST = 500  # own prices of an account
OK, NOACCT, FULL = 0, 20, 21  # codes of own_price.lua


class AccountPrices:
    """Sets and removes the own prices of accounts."""

    def __init__(self, links: Links, accounts: Accounts, outbox: AuditOutbox) -> None:
        self._links = links
        self._accounts = accounts
        self._outbox = outbox
        self._script = load_script("own_price")

    async def set(self, actor: Actor, account: str, model: str, own: OwnPrice | None) -> Account:
        """Give the account `own` as its price for the model, or with None the list price again.

        It holds for the next call; needs the scopes `accounts` and `credits` of the site. NotFound: no such account.
        InvalidValue: a name or an amount is not possible, or the account has `MOST` own prices.
        """
        actor.require("accounts")
        actor.require("credits")
        check_model(model)
        if own is not None:
            _check(own)
        found = await self._accounts.show(account)
        before, after = found.prices.get(model), own_price_form(own) if own is not None else None
        if before == after:
            return found
        text = msgspec.json.encode(after).decode() if after is not None else ""
        name = slot(account)
        code = await self._links.link(name).eval(self._script, [name], [model, text, MOST])
        if code == FULL:
            raise InvalidValue(f"account {account!r} has {MOST} prices of its own; clear one first")
        if code != OK:
            raise NotFound(f"no account {account!r}")
        event = new_event(
            actor,
            "accounts.price",
            f"account:{account}",
            account=account,
            before={model: before},
            after={model: after},
        )
        await self._outbox.add(event)
        return await self._accounts.show(account)


def _check(own: OwnPrice) -> None:
    if not 0 <= own.factor <= MAX_FACTOR:
        raise InvalidValue(f"a factor of {format_amount(own.factor)} is not possible; it lies between 0 and 1000")
    known = AmountSettings.__struct_fields__
    for name, amount in own.amounts:
        if name not in known:
            raise InvalidValue(f"{name!r} is no amount of a price{suggestion(name, known)}")
        if not 0 <= amount <= MAX_AMOUNT:
            raise InvalidValue(f"{name} = {format_amount(amount)} is not possible; a price is zero or more")
