"""Refunds and limits of accounts, each with its event in the audit trail. Amounts are nano-units."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Unpack

from msgspec import Struct

from gateway.accounts.accounts import Account, Accounts
from gateway.admin.account_limits import AccountLimits, Limits
from gateway.admin.actor import Actor
from gateway.admin.audit_event import changes, new_event
from gateway.admin.outbox import AuditOutbox
from gateway.admin.refunds import Refunds
from gateway.amounts import format_amount
from gateway.config.settings import Settings
from gateway.ids import to_request_id
from gateway.ledger.refund import Refunded
from gateway.store.links import Links, slot


class MoneyAdmin:
    """What operators do with the money of accounts, beside credits."""

    def __init__(self, accounts: Accounts, refunds: Refunds, limits: AccountLimits, outbox: AuditOutbox) -> None:
        self._accounts = accounts
        self._refunds = refunds
        self._limits = limits
        self._outbox = outbox

    async def refund(
        self,
        actor: Actor,
        account: str,
        request_id: str,
        amount: int | None = None,
        *,
        operation: str | None = None,
        note: str = "",
    ) -> Refunded:
        """`Refunds.refund`; needs the scope `credits`. A repeated operation has no event."""
        actor.require("credits", account)
        request_id = to_request_id(request_id)
        refunded = await self._refunds.refund(account, request_id, amount, operation=operation, note=note)
        if refunded.status != "repeated":
            after = {"request_id": request_id, "amount": format_amount(refunded.amount), "note": note}
            after["operation"] = refunded.operation
            await self._record(actor, "refund", account, {}, after)
        return refunded

    async def limit(
        self, actor: Actor, account: str, *, clear: Collection[str] = (), **limits: Unpack[Limits]
    ) -> Account:
        """`AccountLimits.change`; needs the scope `accounts` of the site, and for the floor `credits`, too."""
        actor.require("accounts")
        if limits.get("floor") is not None or "floor" in clear:
            actor.require("credits")
        before = await self._accounts.show(account)
        after = await self._limits.change(account, clear=clear, **limits)
        await self._record(actor, "limit", account, *changes(_shown(before), _shown(after)))
        return after

    async def _record(
        self, actor: Actor, action: str, account: str, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        event = new_event(
            actor, f"accounts.{action}", f"account:{account}", account=account, before=before, after=after
        )
        await self._outbox.add(event)


def _shown(account: Account) -> dict[str, Any]:
    form = account.json_form()
    return {name: form.get(name) for name in ("floor", "rpm", "tpm", "concurrency", "monthly", "max_session_cost")}


class LowBalance(Struct, frozen=True):
    """What calls may still spend, in nano-units; `is_low` if that is not above the threshold."""

    available: int
    threshold: int
    is_low: bool


async def low_balance(links: Links, settings: Settings, account: Account) -> LowBalance:
    """Compare with the account's own threshold of `gateway notify threshold`, else with that of `[notify]`."""
    name = slot(account.name)
    own = await links.link(name).call("HGET", name, "low")
    threshold = int(own) if own is not None else settings.notify.balance_low
    return LowBalance(account.available, threshold, account.available <= threshold)
