"""Budgets of members: the most that all keys of a user may spend in an account. Amounts are nano-units."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct

from gateway.accounts.accounts import Refused
from gateway.accounts.key_settings import key_fields
from gateway.accounts.keys import period_spent
from gateway.admin.actor import Actor
from gateway.admin.audit_event import changes, new_event
from gateway.admin.keys import require_key_reader, require_key_rights
from gateway.admin.outbox import AuditOutbox
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id
from gateway.amounts import format_amount
from gateway.errors import InvalidValue, NotFound
from gateway.ledger.periods import Every, charged_in
from gateway.ledger.scripts import Links, load_script, slot
from gateway.store.command import text_fields

OK = 0  # code of edit_member.lua
CLEARABLE = {"budget": "cap", "every": "every"}  # fields in the store


class MemberBudget(Struct, frozen=True):
    """What a member has spent in an account, over all keys, and the budget there."""

    account: str
    user: str
    budget: int | None
    every: str | None  # the period of the budget: month, week, day
    spent: int
    period_spent: int  # what counts against the budget
    held: int

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway users limit`."""
        form = {name: getattr(self, name) for name in self.__struct_fields__}
        for name in ("budget", "spent", "period_spent", "held"):
            form[name] = format_amount(form[name]) if form[name] is not None else None
        return form


class MemberBudgets:
    """What operators do with members of any account, and owners with members of theirs."""

    def __init__(self, links: Links, transactions: Transactions, outbox: AuditOutbox) -> None:
        self._links = links
        self._transactions = transactions
        self._outbox = outbox
        self._edit, self._count = load_script("edit_member"), load_script("count_budget")

    async def show(self, actor: Actor, user_id: str, account: str) -> MemberBudget:
        """What a member has spent; NotFound if the user is no member. A user may see their own."""
        require_key_reader(actor, account, user_id)
        await self._require_member(user_id, account)
        return await self._read(user_id, account)

    async def of_members(self, actor: Actor, account: str, members: Sequence[User]) -> dict[str, MemberBudget]:
        """What users have spent in an account that they are members of, by their ids; the store is asked once."""
        for user in members:
            require_key_reader(actor, account, user.id)
        found = await self._read_all([user.id for user in members], account)
        return {budget.user: budget for budget in found}

    async def change(
        self,
        actor: Actor,
        user_id: str,
        account: str,
        *,
        budget: int | None = None,
        every: Every | Literal["never"] | None = None,
        clear: Collection[str] = (),
    ) -> MemberBudget:
        """Set the budget and its period, or remove what `clear` names; all or nothing is changed.

        It holds for the next call. Calls that were charged before count, in a new period as far as their ledger lines
        are in the store. NotFound: no such member. InvalidValue: a value is not possible.
        """
        require_key_rights(actor, account)
        fields = _fields(budget, every, clear)
        await self._require_member(user_id, account)
        before = await self._read(user_id, account)
        name = slot(account)
        link = self._links.link(name)
        pairs = [word for pair in fields.items() for word in pair]
        code, text, period = await link.eval(self._edit, [name], [user_id, *pairs])
        if code != OK:
            raise InvalidValue("a period needs a budget")
        if text:
            until, period_name = text.decode(), period.decode()
            charged = await charged_in(self._links, account, period_name, until=until, user_id=user_id)
            await link.eval(self._count, [name], [f"u:{user_id}", period_name, until, charged])
        after = await self._read(user_id, account)
        sides = zip(("before", "after"), changes(_limits(before), _limits(after)), strict=True)
        await self._outbox.add(new_event(actor, "members.limit", f"user:{user_id}", account=account, **dict(sides)))
        return after

    async def _read(self, user_id: str, account: str) -> MemberBudget:
        [found] = await self._read_all([user_id], account)
        return found

    async def _read_all(self, user_ids: Sequence[str], account: str) -> list[MemberBudget]:
        """Commands of one tick are one write."""
        call = self._links.link(slot(account)).call
        names = [f"{slot(account)}:u:{user_id}" for user_id in user_ids]
        (seconds, _), *replies = await asyncio.gather(call("TIME"), *(call("HGETALL", name) for name in names))
        now = datetime.fromtimestamp(int(seconds), UTC)
        return [
            _budget(account, user_id, text_fields(reply), now) for user_id, reply in zip(user_ids, replies, strict=True)
        ]

    async def _require_member(self, user_id: str, account: str) -> None:
        user = await self._transactions.read(user_by_id, user_id)
        if account not in user.accounts:
            raise NotFound("There is no such member")


def _budget(account: str, user_id: str, fields: dict[str, str], now: datetime) -> MemberBudget:
    return MemberBudget(
        account,
        user_id,
        int(fields["cap"]) if "cap" in fields else None,
        fields.get("every"),
        int(fields.get("spent", "0")),
        period_spent(fields, now),
        int(fields.get("held", "0")),
    )


def _fields(budget: int | None, every: Every | Literal["never"] | None, clear: Collection[str]) -> dict[str, str | int]:
    given = {name for name, value in (("budget", budget), ("every", every)) if value is not None}
    for name in clear:
        if name not in CLEARABLE:
            raise InvalidValue(f"{name!r} is nothing to clear; known: {', '.join(CLEARABLE)}")
        if name in given:
            raise InvalidValue(f"{name} cannot be set and cleared at once")
    if not given and not clear:
        raise InvalidValue("name a limit to set or to clear")
    try:
        fields = key_fields({"budget": budget, "every": every}, now=0)
    except Refused as error:
        raise InvalidValue(str(error)) from None
    for name in clear:
        fields[CLEARABLE[name]] = ""
    if "budget" in clear:
        fields.setdefault("every", "")
    return fields


def _limits(member: MemberBudget) -> dict[str, Any]:
    form = member.json_form()
    return {name: form[name] for name in CLEARABLE}
