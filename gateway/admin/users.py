"""Users: create, find, list, change, disable, enable. `gateway.admin.personal_data` erases them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, TypedDict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import SITE_ROLES, Actor, SiteRole
from gateway.admin.audit_event import changes
from gateway.admin.audit_trail import record
from gateway.admin.member_keys import MemberKeys
from gateway.admin.pages import MOST, READ_AT_MOST
from gateway.admin.random_ids import new_id
from gateway.admin.times import to_micros
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import (
    User,
    has_operator,
    named,
    require_another_operator,
    require_power_over,
    user_by_id,
    user_of,
    users_of,
)
from gateway.admin.values import checked_name, normal_email
from gateway.database.people_tables import invitations, sessions, sign_in_links, users
from gateway.errors import AlreadyExists, Forbidden, InvalidValue, NotFound


class UserChanges(TypedDict, total=False):
    """What `edit` changes; an absent field stays."""

    email: str
    name: str
    role: SiteRole
    second_factor: Literal[False]  # removes it


class Users:
    """What operators do with users, and users with their own name."""

    def __init__(self, transactions: Transactions, keys: MemberKeys) -> None:
        self._transactions = transactions
        self._keys = keys
        self._has_operator = False

    async def has_operator(self) -> bool:
        """Whether there is an operator who can sign in. Once there is one, there is always one."""
        if not self._has_operator:
            self._has_operator = await self._transactions.read(has_operator)
        return self._has_operator

    async def create(self, actor: Actor, email: str, *, name: str = "", role: SiteRole = "none") -> User:
        """Add a user, who cannot sign in yet; AlreadyExists if the e-mail is taken."""
        actor.require("users")
        email, name, role = normal_email(email), checked_name(name), checked_role(role)
        if role != "none":
            actor.require_operator()
        return await self._transactions.write(insert_user, actor, email, name, role)

    async def show(self, actor: Actor, user_id: str) -> User:
        """One user; a user may see themselves."""
        if actor.id != user_id or actor.kind != "user":
            actor.require_read("users")
        return await self._transactions.read(user_by_id, user_id)

    async def find(self, actor: Actor, email: str) -> User:
        """The user with this e-mail; NotFound if there is none."""
        actor.require_read("users")
        email = normal_email(email)
        user = await self._transactions.read(user_of, users.c.email == email)
        if user is None:
            raise NotFound(f"There is no user {email}")
        return user

    async def list(self, actor: Actor, *, after: str = "", containing: str = "", limit: int = MOST) -> list[User]:
        """Users by e-mail, those behind the e-mail `after`, at most `READ_AT_MOST`.

        Their e-mail or name has `containing`.
        """
        actor.require_read("users")
        table = users.c
        query = sa.select(users).where(table.email > after).order_by(table.email).limit(min(limit, READ_AT_MOST))
        if containing:
            query = query.where(named(containing))
        return await self._transactions.read(users_of, query)

    async def by_ids(self, actor: Actor, ids: Collection[str]) -> Sequence[User]:
        """Those of these users who are there; at most 1,000."""
        actor.require_read("users")
        query = sa.select(users).where(users.c.id.in_(sorted(ids)[:MOST]))
        return await self._transactions.read(users_of, query)

    async def edit(self, actor: Actor, user_id: str, edited: UserChanges) -> User:
        """Change a user; a user may change their own name. LastOperator, AlreadyExists.

        A new e-mail ends the user's links, a new role the open invitations that they made.
        """
        wanted = _checked(edited)
        if not (actor.kind == "user" and actor.id == user_id and set(wanted) <= {"name"}):
            actor.require("users")
        return await self._transactions.write(edit_user, actor, user_id, wanted)

    async def disable(self, actor: Actor, user_id: str) -> User:
        """Keep the user from signing in, end their sessions, links and open invitations, and disable their keys.

        It may be repeated after a failure of the store.
        """
        actor.require("users")
        user = await self._transactions.write(_disable, actor, user_id)
        await self._keys.disable_all(actor, user)
        return user

    async def enable(self, actor: Actor, user_id: str) -> User:
        """Undo `disable`; the user signs in again, and their keys work again."""
        actor.require("users")
        user = await self._transactions.write(_enable, actor, user_id)
        await self._keys.enable_all(actor, user)
        return user


def checked_role(role: str) -> SiteRole:
    """The role on the site; InvalidValue for anything else."""
    if role not in SITE_ROLES:
        raise InvalidValue(f"A role on the site is one of {', '.join(SITE_ROLES)}", param="role")
    return role


def insert_user(connection: Connection, actor: Actor, email: str, name: str, role: str, *, user_id: str = "") -> User:
    """Add a user of checked values, with this new id if one is given; AlreadyExists if the e-mail is taken."""
    user_id = user_id or new_id("usr")
    values = {"id": user_id, "email": email, "name": name, "role": role, "created_at": now()}
    try:
        connection.execute(users.insert().values(values))
    except sa.exc.IntegrityError:
        raise AlreadyExists(f"There is a user {email} already", param="email") from None
    personal = ["email", "name"] if name else ["email"]
    record(connection, actor, "users.create", f"user:{user_id}", after={"role": role, "personal": personal})
    return user_by_id(connection, user_id)


def end_access(connection: Connection, user_id: str) -> None:
    """End the user's sessions, links and the open invitations that they made."""
    connection.execute(sessions.delete().where(sessions.c.user_id == user_id))
    end_links(connection, user_id)
    end_invitations(connection, user_id)


def end_links(connection: Connection, user_id: str) -> None:
    """End the links of a user."""
    connection.execute(sign_in_links.delete().where(sign_in_links.c.user_id == user_id))


def end_invitations(connection: Connection, user_id: str) -> None:
    """End the open invitations that a user made."""
    made = invitations.c.created_by == f"user:{user_id}"
    connection.execute(invitations.delete().where(made, invitations.c.used_at.is_(None)))


def now() -> int:
    """This moment, in microseconds."""
    return to_micros(datetime.now(UTC))


def _checked(edited: UserChanges) -> dict[str, Any]:
    wanted: dict[str, Any] = {}
    if "email" in edited:
        wanted["email"] = normal_email(edited["email"])
    if "name" in edited:
        wanted["name"] = checked_name(edited["name"])
    if "role" in edited:
        wanted["role"] = checked_role(edited["role"])
    if "second_factor" in edited:
        wanted |= {"totp_secret": None, "totp_step": None}
    return wanted


def edit_user(connection: Connection, actor: Actor, user_id: str, wanted: dict[str, Any]) -> User:
    """Change columns to checked values, with the event; LastOperator, AlreadyExists, Forbidden."""
    user = user_by_id(connection, user_id)
    if set(wanted) - {"name"} or actor.id != user_id:
        require_power_over(actor, user)
    if wanted.get("role", user.role) != user.role:
        actor.require_operator()
        require_another_operator(connection, user_id)
    if not wanted:
        return user
    try:
        connection.execute(users.update().where(users.c.id == user_id).values(wanted))
    except sa.exc.IntegrityError:
        raise AlreadyExists(f"There is a user {wanted['email']} already", param="email") from None
    changed = user_by_id(connection, user_id)
    if changed.email != user.email:
        end_links(connection, user_id)  # they may have gone to the old address
    if changed.role != user.role:
        end_invitations(connection, user_id)  # they may give what the user could give before
    before, after = changes(_public(user), _public(changed))
    personal = [field for field in ("email", "name") if getattr(user, field) != getattr(changed, field)]
    if personal:
        after = {**after, "personal": personal}
    record(connection, actor, "users.edit", f"user:{user_id}", before=before, after=after)
    return changed


def _public(user: User) -> dict[str, Any]:
    return {"role": user.role, "has_second_factor": user.has_second_factor}


def _disable(connection: Connection, actor: Actor, user_id: str) -> User:
    user = user_by_id(connection, user_id)
    require_power_over(actor, user)
    if actor.kind == "user" and actor.id == user_id:
        raise Forbidden("Users cannot disable themselves")
    if user.disabled is not None:
        return user
    require_another_operator(connection, user_id)
    connection.execute(users.update().where(users.c.id == user_id).values(disabled_at=now()))
    end_access(connection, user_id)
    sides = {"before": {"state": "active"}, "after": {"state": "disabled"}}
    record(connection, actor, "users.disable", f"user:{user_id}", **sides)
    return user_by_id(connection, user_id)


def _enable(connection: Connection, actor: Actor, user_id: str) -> User:
    user = user_by_id(connection, user_id)
    require_power_over(actor, user)
    if user.disabled is None:
        return user
    connection.execute(users.update().where(users.c.id == user_id).values(disabled_at=None))
    sides = {"before": {"state": "disabled"}, "after": {"state": "active"}}
    record(connection, actor, "users.enable", f"user:{user_id}", **sides)
    return user_by_id(connection, user_id)
