"""Imports users, who cannot sign in before they get a link, their memberships, and their budgets as members.

A user may have several lines.
"""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from gateway.accounts.accounts import Directory
from gateway.admin.actor import ACCOUNT_ROLES, SITE_ROLES, AccountRole, Actor, SiteRole
from gateway.admin.user_rows import User
from gateway.admin.values import checked_name, normal_email
from gateway.amounts import format_amount
from gateway.errors import NotFound
from gateway.imports import cells
from gateway.imports.plan import Check, Imported, Plan, run_import
from gateway.imports.table import Row, Table
from gateway.people.member_budgets import MemberBudgets
from gateway.people.memberships import Memberships
from gateway.people.users import UserChanges, Users

if TYPE_CHECKING:
    from gateway.admin.store_services import StoreServices
    from gateway.people.people import People

COLUMNS = {
    "email": normal_email,
    "name": checked_name,
    "role": cells.one_of(SITE_ROLES, "role on the site"),
    "account": cells.account_name,
    "account_role": cells.one_of(ACCOUNT_ROLES, "role in an account"),
    "budget": cells.positive,
    "every": cells.one_of(("month", "week", "day"), "period"),
}
OF_USER = ("name", "role")
OF_MEMBER = ("account_role", "budget", "every")
BUDGET = ("budget", "every")


class UserImport:
    """The import into one database. `turn` is held while users are planned and made.

    `check` raises if the rights of who imports have ended.
    """

    def __init__(
        self,
        users: Users,
        memberships: Memberships,
        directory: Directory,
        *,
        budgets: MemberBudgets,
        turn: asyncio.Lock,
        check: Check | None = None,
    ) -> None:
        self._check_rights = check
        self._turn = turn
        self._budgets = budgets
        self._users = users
        self._memberships = memberships
        self._directory = directory

    @classmethod
    def of(cls, people: People, store: StoreServices, *, check: Check | None = None) -> UserImport:
        """The import into the database of these services, in turn with the other imports."""
        return cls(
            people.users,
            people.memberships,
            people.directory,
            budgets=people.member_budgets,
            turn=store.turn_to_import,
            check=check,
        )

    async def run(self, actor: Actor, name: str, content: bytes, *, dry_run: bool) -> Imported:
        """Import a file. InvalidValue names all faults; then nothing is changed."""
        actor.require_operator()
        plan_row = partial(self._plan_row, actor, dict[str, Row](), dict[tuple[str, str], int]())
        async with nullcontext() if dry_run else self._turn:
            return await run_import(
                name, content, COLUMNS, plan_row, required=("email",), dry_run=dry_run, check=self._check_rights
            )

    async def _plan_row(
        self,
        actor: Actor,
        seen: dict[str, Row],
        members: dict[tuple[str, str], int],
        table: Table,
        row: Row,
        plan: Plan,
    ) -> None:
        email = row.values["email"]
        user = await self._find(actor, email)
        first = seen.setdefault(email, row)
        if first is row:
            self._plan_user(actor, row, user, plan)
        for column in OF_USER:
            if row.get(column, first.get(column)) != first.get(column):
                table.add_fault(row.line, column, f"line {first.line} has another {column} for this e-mail")
        if user is not None and user.role == "operator" and row.get("role", "operator") != "operator":
            table.add_fault(row.line, "role", "an import takes the role of no operator; use `gateway users edit`")
        if refusal := await self._refusal(actor, user, row):
            table.add_fault(row.line, *refusal)
        await self._plan_member(actor, table, row, user, plan, members)

    async def _refusal(self, actor: Actor, user: User | None, row: Row) -> tuple[str, str] | None:
        """The column with a role that the actor may not give, and why."""
        user_id, before = (user.id, user.role) if user is not None else ("", "none")
        role, account = row.get("role", before), row.get("account")
        if role != before and (why := await self._users.refusal(actor, user_id, role)):
            return "role", why
        if user is None or account is None:
            return None
        there = user.accounts.get(account)
        role = row.get("account_role", there or "member")
        why = await self._memberships.refusal(actor, user_id, account, role) if role != there else ""
        return ("account_role", why) if why else None

    async def _find(self, actor: Actor, email: str) -> User | None:
        try:
            return await self._users.find(actor, email)
        except NotFound:
            return None

    def _plan_user(self, actor: Actor, row: Row, user: User | None, plan: Plan) -> None:
        email, object_ = row.values["email"], f"user:{row.values['email']}"
        if user is None:
            role: SiteRole = row.get("role", "none")
            create = partial(self._users.create, actor, email, name=row.get("name", ""), role=role)
            plan.add(row.line, "create", object_, row.pick(*OF_USER), create)
            return
        changes = {column: value for column, value in row.pick(*OF_USER).items() if value != getattr(user, column)}
        if not changes:
            plan.add(row.line, "nothing", object_)
            return
        edited: UserChanges = {**changes}  # type: ignore[typeddict-item]
        edit = partial(self._users.edit, actor, user.id, edited, expected_email=user.email)
        plan.add(row.line, "change", object_, changes, edit)

    async def _plan_member(
        self,
        actor: Actor,
        table: Table,
        row: Row,
        user: User | None,
        plan: Plan,
        members: dict[tuple[str, str], int],
    ) -> None:
        email, account = row.values["email"], row.get("account")
        if account is None:
            for column in row.pick(*OF_MEMBER):
                what = "a role in an account" if column == "account_role" else "a member's budget"
                table.add_fault(row.line, "account", f"is empty: {what} needs the account")
            return
        first = members.setdefault((email, account), row.line)
        if first != row.line:
            table.add_fault(row.line, "account", f"the user is a member of {account} in line {first} already")
            return
        try:
            await self._directory.require(account)
        except NotFound as error:
            table.add_fault(row.line, "account", error.message)
            return
        there = user.accounts.get(account) if user is not None else None
        role: AccountRole = row.get("account_role", there or "member")
        if there != role:
            member = partial(self._set_member, actor, email, account, role)
            plan.add(row.line, "change", f"user:{email}", {"account": account, "role": role}, member)
        await self._plan_budget(actor, table, row, user if there else None, plan)

    async def _plan_budget(self, actor: Actor, table: Table, row: Row, member: User | None, plan: Plan) -> None:
        """`member`: the user, if a member of the account already."""
        wanted, account = row.pick(*BUDGET), row.values["account"]
        if not wanted:
            return
        before = await self._budgets.show(actor, member.id, account) if member is not None else None
        if "budget" not in wanted and (before is None or before.budget is None):
            table.add_fault(row.line, "every", "a period needs a budget")
            return
        changes: dict[str, Any] = {
            name: value for name, value in wanted.items() if before is None or getattr(before, name) != value
        }
        if not changes:
            return
        shown = {name: format_amount(value) if name == "budget" else value for name, value in changes.items()}
        email = row.values["email"]
        limit = partial(self._set_budget, actor, email, account, changes)
        plan.add(row.line, "change", f"user:{email}", {"account": account, **shown}, limit)

    async def _set_budget(self, actor: Actor, email: str, account: str, changes: dict[str, Any]) -> None:
        user = await self._users.find(actor, email)
        await self._budgets.change(actor, user.id, account, **changes)

    async def _set_member(self, actor: Actor, email: str, account: str, role: AccountRole) -> None:
        user = await self._users.find(actor, email)
        await self._memberships.set(actor, user.id, account, role, expected_email=email)
