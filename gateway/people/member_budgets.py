"""Budgets of members: the most that all keys of a user may spend in an account. Amounts are nano-units."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Literal

from msgspec import Struct, structs

from gateway.accounts.key_record import every_of
from gateway.accounts.key_settings import key_fields
from gateway.accounts.stored_fields import StoredFields, hash_pairs
from gateway.admin.actor import Actor
from gateway.admin.audit_event import changes, new_event
from gateway.admin.outbox import AuditOutbox
from gateway.admin.rights import require_manages_keys, require_reads_keys
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id
from gateway.amounts import format_amount
from gateway.errors import InvalidValue, NotFound
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.periods import Every, charged_in, period_of
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot

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
    unreadable: bool = False  # a stored field cannot be read, so calls of the member's keys may be refused

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
        require_reads_keys(actor, account, user_id)
        await self._require_member(user_id, account)
        return await self._read(user_id, account)

    async def of_members(self, actor: Actor, account: str, members: Sequence[User]) -> dict[str, MemberBudget]:
        """What users have spent in an account that they are members of, by their ids; the store is asked once."""
        for user in members:
            require_reads_keys(actor, account, user.id)
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
        require_manages_keys(actor, account)
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
        call = self._links.link(slot(account)).call
        names = [f"{slot(account)}:u:{user_id}" for user_id in user_ids]
        seconds, _ = await call("TIME")
        replies = await gather_bounded(call("HGETALL", name) for name in names)
        now = datetime.fromtimestamp(int(seconds), UTC)
        return [
            _budget(account, user_id, StoredFields(hash_pairs(reply)), now)
            for user_id, reply in zip(user_ids, replies, strict=True)
        ]

    async def _require_member(self, user_id: str, account: str) -> None:
        with suppress(NotFound):  # a user of other accounts and none get the same answer
            if account in (await self._transactions.read(user_by_id, user_id)).accounts:
                return
        raise NotFound("There is no such member")


def _budget(account: str, user_id: str, fields: StoredFields, now: datetime) -> MemberBudget:
    spent, base = fields.number("spent") or 0, fields.number("base") or 0
    every = fields.read("every", every_of, None)
    in_period = every is None or fields.get("period") == period_of(every, now)
    found = MemberBudget(
        account,
        user_id,
        fields.number("cap"),
        every,
        spent,
        spent - base if in_period else 0,
        fields.number("held") or 0,
    )
    return structs.replace(found, unreadable=bool(fields.unreadable))


def _fields(budget: int | None, every: Every | Literal["never"] | None, clear: Collection[str]) -> dict[str, str | int]:
    given = {name for name, value in (("budget", budget), ("every", every)) if value is not None}
    for name in clear:
        if name not in CLEARABLE:
            raise InvalidValue(f"{name!r} is nothing to clear; known: {', '.join(CLEARABLE)}")
        if name in given:
            raise InvalidValue(f"{name} cannot be set and cleared at once")
    if not given and not clear:
        raise InvalidValue("name a limit to set or to clear")
    fields = key_fields({"budget": budget, "every": every})
    for name in clear:
        fields[CLEARABLE[name]] = ""
    if "budget" in clear:
        fields.setdefault("every", "")
    return fields


def _limits(member: MemberBudget) -> dict[str, Any]:
    form = member.json_form()
    return {name: form[name] for name in CLEARABLE}
