"""Memberships: which users belong to which account, as owner or member."""

from __future__ import annotations

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import ACCOUNT_ROLES, AccountRole, Actor
from gateway.admin.audit_trail import record
from gateway.admin.directory import Directory
from gateway.admin.member_keys import MemberKeys
from gateway.admin.pages import MOST, READ_AT_MOST
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, named, user_by_id, users_of
from gateway.admin.users import now
from gateway.database.people_tables import invitations, memberships, users
from gateway.errors import Forbidden, InvalidValue, NotFound


class Memberships:
    """What operators do with members of any account, and owners with members of theirs."""

    def __init__(self, transactions: Transactions, directory: Directory, keys: MemberKeys) -> None:
        self._transactions = transactions
        self._directory = directory
        self._keys = keys

    async def list(
        self,
        actor: Actor,
        account: str,
        *,
        after: str = "",
        containing: str = "",
        ids: Collection[str] | None = None,
        limit: int = MOST,
    ) -> list[User]:
        """The members of an account by e-mail, those behind the e-mail `after`; at most `READ_AT_MOST`.

        Their e-mail or name has `containing`. With `ids`, only these users.
        """
        if not actor.may_read("users", account) and not actor.owns(account):
            raise Forbidden("This needs the scope 'read' or 'users', or an owner of the account")
        query = sa.select(users).join(memberships).where(memberships.c.account == account, users.c.email > after)
        if containing:
            query = query.where(named(containing))
        if ids is not None:
            query = query.where(users.c.id.in_(ids))
        return await self._transactions.read(users_of, query.order_by(users.c.email).limit(min(limit, READ_AT_MOST)))

    async def set(self, actor: Actor, user_id: str, account: str, role: AccountRole) -> User:
        """Give a user a role in an account. An owner changes members of theirs, and adds others by invitation."""
        require_owner(actor, account)
        role = checked_account_role(role)
        await self._directory.require(account)
        return await self._transactions.write(_set, actor, user_id, account, role)

    async def remove(self, actor: Actor, user_id: str, account: str) -> User:
        """Take a user out of an account, revoke their keys of it, and end the open invitations to it that they made.

        NotFound if the user is no member. A user may leave an account.
        """
        if not (actor.kind == "user" and actor.id == user_id):
            require_owner(actor, account)
        await self._transactions.read(_require_member, user_id, account)
        await self._keys.revoke_all(actor, user_id, [account])  # before: it can be repeated if the store fails
        user = await self._transactions.write(_remove, actor, user_id, account)
        await self._keys.revoke_all(actor, user_id, [account])  # keys that were created meanwhile
        return user


def require_owner(actor: Actor, account: str) -> None:
    """Forbidden unless the actor decides about members of the account."""
    if not actor.may("users", account) and not actor.owns(account):
        raise Forbidden("This needs the scope 'users', or an owner of the account")


def checked_account_role(role: str) -> AccountRole:
    """The role in an account; InvalidValue for anything else."""
    if role not in ACCOUNT_ROLES:
        raise InvalidValue(f"A role in an account is one of {', '.join(ACCOUNT_ROLES)}", param="role")
    return role


def put_membership(connection: Connection, actor: Actor, user: User, account: str, role: str) -> None:
    """Store the role and its event; nothing if the user has it already. The caller has locked the user."""
    before = user.accounts.get(account, "none")
    if before == role:
        return
    if before == "none":
        row = {"user_id": user.id, "account": account, "role": role, "created_at": now()}
        connection.execute(memberships.insert().values(row))
    else:
        connection.execute(memberships.update().where(*_one(user.id, account)).values(role=role))
    _record(connection, actor, user.id, account, before, role)


def _set(connection: Connection, actor: Actor, user_id: str, account: str, role: str) -> User:
    user = lock_user(connection, user_id)
    if account not in user.accounts and not actor.may("users", account):
        raise NotFound("There is no such member")  # the same for users of other accounts and for none
    put_membership(connection, actor, user, account, role)
    return user_by_id(connection, user_id)


def _remove(connection: Connection, actor: Actor, user_id: str, account: str) -> User:
    user = lock_user(connection, user_id)
    _check_member(user, account)
    connection.execute(memberships.delete().where(*_one(user_id, account)))
    made = invitations.c.created_by == f"user:{user_id}"
    open_ = invitations.c.used_at.is_(None)
    connection.execute(invitations.delete().where(made, open_, invitations.c.account == account))
    _record(connection, actor, user_id, account, user.accounts[account], "none")
    return user_by_id(connection, user_id)


def _require_member(connection: Connection, user_id: str, account: str) -> None:
    _check_member(user_by_id(connection, user_id), account)


def _check_member(user: User, account: str) -> None:
    if account not in user.accounts:
        raise NotFound("There is no such member")


def _one(user_id: str, account: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return memberships.c.user_id == user_id, memberships.c.account == account


def _record(connection: Connection, actor: Actor, user_id: str, account: str, before: str, after: str) -> None:
    sides = {"before": {"role": before}, "after": {"role": after}}
    record(connection, actor, "members.set", f"user:{user_id}", account=account, **sides)
