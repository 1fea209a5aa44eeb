"""Imports users, who cannot sign in before they get a link, and their memberships; a user may have several lines."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING

from gateway.admin.actor import ACCOUNT_ROLES, SITE_ROLES, AccountRole, Actor, SiteRole
from gateway.admin.directory import Directory
from gateway.admin.imports import cells
from gateway.admin.imports.plan import Imported, Plan
from gateway.admin.imports.run import run_import
from gateway.admin.imports.table import Row, Table
from gateway.admin.memberships import Memberships
from gateway.admin.user_rows import User
from gateway.admin.users import UserChanges, Users
from gateway.admin.values import checked_name, normal_email
from gateway.errors import NotFound

if TYPE_CHECKING:
    from gateway.admin.people import People
    from gateway.admin.store_services import StoreServices

COLUMNS = {
    "email": normal_email,
    "name": checked_name,
    "role": cells.one_of(SITE_ROLES, "role on the site"),
    "account": cells.account_name,
    "account_role": cells.one_of(ACCOUNT_ROLES, "role in an account"),
}
OF_USER = ("name", "role")


class UserImport:
    """The import into one database. `turn` is held while users are planned and made."""

    def __init__(self, users: Users, memberships: Memberships, directory: Directory, *, turn: asyncio.Lock) -> None:
        self._turn = turn
        self._users = users
        self._memberships = memberships
        self._directory = directory

    @classmethod
    def of(cls, people: People, store: StoreServices) -> UserImport:
        """The import into the database of these services, in turn with the other imports."""
        return cls(people.users, people.memberships, people.directory, turn=store.turn_to_import)

    async def run(self, actor: Actor, name: str, content: bytes, *, dry_run: bool) -> Imported:
        """Import a file. InvalidValue names all faults; then nothing is changed."""
        actor.require_operator()
        plan_row = partial(self._plan_row, actor, dict[str, Row](), dict[tuple[str, str], int]())
        async with nullcontext() if dry_run else self._turn:
            return await run_import(name, content, COLUMNS, plan_row, required=("email",), dry_run=dry_run)

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
        await self._plan_member(actor, table, row, user, plan, members)

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
        plan.add(row.line, "change", object_, changes, partial(self._users.edit, actor, user.id, edited))

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
            if "account_role" in row.values:
                table.add_fault(row.line, "account", "is empty: a role in an account needs the account")
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
        role: AccountRole = row.get("account_role", "member")
        if user is not None and user.accounts.get(account) == role:
            return
        values = {"account": account, "role": role}
        plan.add(row.line, "change", f"user:{email}", values, partial(self._set_member, actor, email, account, role))

    async def _set_member(self, actor: Actor, email: str, account: str, role: AccountRole) -> None:
        user = await self._users.find(actor, email)
        await self._memberships.set(actor, user.id, account, role)
