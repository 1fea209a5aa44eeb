"""Imports accounts: creates them, sets their group, state, limits and rules, and books credits once per operation."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.accounts.accounts import Account, Accounts
from gateway.admin.accounts import AccountAdmin
from gateway.admin.actor import Actor
from gateway.admin.model_names import models_by_name
from gateway.admin.money import MoneyAdmin
from gateway.amounts import MAX_AMOUNT, format_amount, parse_amount
from gateway.errors import NotFound
from gateway.imports import cells
from gateway.imports.plan import Check, Imported, Plan, run_import
from gateway.imports.table import Row, Table
from gateway.store.links import Links, slot

if TYPE_CHECKING:
    from gateway.admin.store_services import StoreServices

LIMITS = ("floor", "rpm", "tpm", "concurrency", "monthly", "max_session_cost")
MONEY = ("floor", "monthly", "max_session_cost")
CREDIT = ("credit", "operation", "note")


class AccountImport:
    """The import of one store. `groups` are those of the configuration, `models` its names and aliases.

    `turn` is held while accounts are planned and changed. `remember` is called after changes, also if they stopped.
    `check` raises if the rights of who imports have ended.
    """

    def __init__(
        self,
        links: Links,
        accounts: Accounts,
        admin: AccountAdmin,
        money: MoneyAdmin,
        *,
        groups: Mapping[str, object],
        models: Mapping[str, str],
        turn: asyncio.Lock,
        remember: Callable[[], Awaitable[None]],
        check: Check | None = None,
    ) -> None:
        self._check_rights = check
        self._links = links
        self._accounts = accounts
        self._admin = admin
        self._money = money
        self._turn = turn
        self._remember = remember
        models_cell = cells.several(cells.model(models))
        self.columns = {
            "name": cells.account_name,
            "group": cells.one_of(groups, "group"),
            "state": cells.one_of(("active", "disabled"), "state"),
            "balance": cells.not_negative,
            "floor": parse_amount,
            "rpm": cells.count,
            "tpm": cells.count,
            "concurrency": cells.count,
            "monthly": cells.not_negative,
            "max_session_cost": cells.positive,
            "allowed": models_cell,
            "denied": models_cell,
            "credit": cells.positive,
            "operation": cells.operation,
            "note": cells.note,
        }

    @classmethod
    def of(cls, services: StoreServices, *, check: Check | None = None) -> AccountImport:
        """The import into the store of these services, with their settings."""
        settings = services.settings
        return cls(
            services.store,
            services.accounts,
            services.account_admin,
            services.money,
            groups=settings.groups,
            models=models_by_name(settings),
            turn=services.turn_to_import,
            remember=services.remember_accounts,
            check=check,
        )

    async def run(self, actor: Actor, name: str, content: bytes, *, dry_run: bool) -> Imported:
        """Import a file. InvalidValue names all faults; then nothing is changed."""
        actor.require("accounts")
        actor.require("credits")
        plan_row = partial(self._plan_row, actor, dict[str, int](), dict[tuple[str, str], int]())
        if dry_run:
            return await run_import(name, content, self.columns, plan_row, required=("name",), dry_run=True)
        async with self._turn:
            try:
                return await run_import(
                    name, content, self.columns, plan_row, required=("name",), dry_run=False, check=self._check_rights
                )
            finally:
                await self._remember()

    async def _plan_row(
        self,
        actor: Actor,
        seen: dict[str, int],
        operations: dict[tuple[str, str], int],
        table: Table,
        row: Row,
        plan: Plan,
    ) -> None:
        name = row.values["name"]
        if name in seen and row.values.keys() - {"name", *CREDIT}:
            table.add_fault(row.line, "name", f"{name} stands in line {seen[name]} already; only credits may follow")
            return
        account = await self._find(name)
        if name not in seen:
            self._check(table, row, account)
            self._plan_account(actor, row, account, plan)
        seen.setdefault(name, row.line)
        await self._plan_credit(actor, table, row, account, plan, operations)

    async def _find(self, name: str) -> Account | None:
        try:
            return await self._accounts.show(name)
        except NotFound:
            return None

    def _check(self, table: Table, row: Row, account: Account | None) -> None:
        floor, both = row.get("floor"), set(row.get("allowed", ())) & set(row.get("denied", ()))
        if both:
            table.add_fault(row.line, "denied", f"{', '.join(sorted(both))}: also in the column allowed")
        free = row.get("balance", 0) if account is None else account.balance - account.held
        if floor is not None and floor > max(free, account.floor if account is not None else 0):
            problem = f"the floor cannot be above the free balance, {format_amount(free)}"
            table.add_fault(row.line, "floor", problem)

    def _plan_account(self, actor: Actor, row: Row, account: Account | None, plan: Plan) -> None:
        name = row.values["name"]
        object_ = f"account:{name}"
        if account is None:
            group, balance = row.get("group", "default"), row.get("balance", 0)
            values = {"group": group, "balance": format_amount(balance)}
            create = partial(self._admin.create, actor, name, group=group, balance=balance)
            plan.add(row.line, "create", object_, values, create)
        changes = 0
        if account is not None and row.get("group", account.group) != account.group:
            changes += 1
            group = row.values["group"]
            plan.add(row.line, "change", object_, {"group": group}, partial(self._admin.move, actor, name, group))
        limits = {limit: value for limit, value in row.pick(*LIMITS).items() if value != getattr(account, limit, None)}
        if limits and limits != {"floor": 0}:
            changes += 1
            change = partial(self._money.limit, actor, name, **limits)
            plan.add(row.line, "change", object_, _shown(limits), change)
        for column, known, rule in (
            ("allowed", account.allowed if account else [], self._admin.allow),
            ("denied", account.denied if account else [], self._admin.deny),
        ):
            if models := [model for model in row.get(column, ()) if model not in known]:
                changes += 1
                plan.add(row.line, "change", object_, {column: models}, partial(rule, actor, name, models))
        state = account.state if account is not None else "active"
        if row.get("state", state) != state:
            changes += 1
            put = self._admin.enable if row.values["state"] == "active" else self._admin.disable
            plan.add(row.line, "change", object_, row.pick("state"), partial(put, actor, name))
        if account is not None and not changes:
            plan.add(row.line, "nothing", object_)

    async def _plan_credit(
        self,
        actor: Actor,
        table: Table,
        row: Row,
        account: Account | None,
        plan: Plan,
        operations: dict[tuple[str, str], int],
    ) -> None:
        name, amount, operation = row.values["name"], row.get("credit"), row.get("operation")
        if amount is None and operation is None and row.get("note") is None:
            return
        if amount is None or operation is None:
            missing = "operation" if operation is None else "credit"
            table.add_fault(row.line, missing, "is empty: a credit needs an operation id, so that it is booked once")
            return
        first = operations.setdefault((name, operation), row.line)
        if first != row.line:
            table.add_fault(row.line, "operation", f"{operation} stands in line {first} already")
            return
        done = await self._links.link(slot(name)).call("HGET", f"{slot(name)}:op", operation)
        if done is not None and done.decode() == f"topup {amount}":
            plan.add(row.line, "nothing", f"account:{name}")
            return
        if done is not None:
            table.add_fault(row.line, "operation", f"{operation} was already used for something else")
            return
        balance = account.balance if account is not None else row.get("balance", 0)
        if balance + amount > MAX_AMOUNT:
            table.add_fault(row.line, "credit", f"the balance cannot pass {format_amount(MAX_AMOUNT)}")
            return
        values = {"amount": format_amount(amount), "operation": operation, **row.pick("note")}
        credit = partial(self._admin.credit, actor, name, amount, operation=operation, note=row.get("note", ""))
        plan.add(row.line, "credit", f"account:{name}", values, credit)


def _shown(limits: dict[str, Any]) -> dict[str, Any]:
    return {limit: format_amount(value) if limit in MONEY else value for limit, value in limits.items()}
