"""Memberships: which users belong to which account, as owner or member."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.accounts.accounts import Directory
from gateway.admin.actor import ACCOUNT_ROLES, ROLE_RANKS, AccountRole, Actor
from gateway.admin.audit_trail import record
from gateway.admin.current_rights import issuer_of
from gateway.admin.granted import entered_by, forget_granted, given_by, granted_to
from gateway.admin.pages import MOST, READ_AT_MOST
from gateway.admin.rights import is_member, manages_members, reads_members
from gateway.admin.times import now
from gateway.admin.transactions import Transactions, as_current
from gateway.admin.user_rows import Roles, User, lock_user, named, require_address, user_by_id, users_of
from gateway.database.people_tables import memberships, users
from gateway.errors import AddressNotProved, Forbidden, InvalidValue, NotFound
from gateway.people.made_by import end_invitations
from gateway.people.member_keys import MemberKeys
from gateway.people.proofs import require_may_rise
from gateway.people.role_rights import (
    GivenBy,
    giver_of,
    keep_granted,
    may_give_claimed,
    note_giver,
    require_by_hand,
    require_may_pass_on,
    require_role,
    take_from_claims,
)


class OwnRole(Struct, frozen=True):
    """An account of a user, with the role that counts in the session; "" for none, where claims of others give it."""

    account: str
    role: str


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
        if not reads_members(actor, account):
            raise Forbidden("This needs the scope 'read' or 'users', or an owner of the account")
        member = memberships.c
        query = sa.select(users).join(memberships, member.user_id == users.c.id)
        query = query.where(member.account == account, member.email > after)
        if containing:
            query = query.where(named(containing))
        if ids is not None:
            query = query.where(member.user_id.in_(ids))
        query = query.order_by(member.email).limit(min(limit, READ_AT_MOST))
        return await self._transactions.read(users_of, query, roles=Roles([account]))

    async def own(self, actor: Actor, *, after: str = "", beginning: str = "", limit: int = MOST) -> Sequence[OwnRole]:
        """The accounts of a user who is signed in by name, those behind the name `after`; at most `READ_AT_MOST`.

        Their names begin with `beginning`.
        """
        return await self._transactions.read(_own, actor, after, beginning, min(limit, READ_AT_MOST))

    async def has_hidden(self, actor: Actor) -> bool:
        """Whether a user who is signed in has roles that do not count in the session: claims of others give them."""
        return await self._transactions.read(_has_hidden, actor)

    async def set(
        self,
        actor: Actor,
        user_id: str,
        account: str,
        role: AccountRole,
        *,
        permanent: bool = False,
        expected_email: str = "",
    ) -> User:
        """Give a user a role in an account. An owner changes members of theirs, and adds others by invitation.

        Forbidden for an actor that may not do itself what a higher role allows.
        A changed role ends the open invitations to the account that the user made. AddressNotProved for a higher role
        of a user who may be somebody else.
        The role that claims give stays one of claims, unless `permanent`: then it stays without them, and sessions end
        in which it did not count. Forbidden for an actor whose own right is of claims.
        AddressChanged if the user has another e-mail than `expected_email`.
        """
        require_owner(actor, account)
        role = checked_account_role(role)
        await self._directory.require(account)
        return await self._transactions.write_as(actor, _set, user_id, account, role, permanent, expected_email)

    async def refusal(self, actor: Actor, user_id: str, account: str, role: AccountRole) -> str:
        """Why `set` would refuse another role now; "" if it would not."""
        return await self._transactions.read(_refusal, actor, user_id, account, role)

    async def remove(self, actor: Actor, user_id: str, account: str) -> User:
        """Take a user out of an account, revoke their keys of it, and end the open invitations to it that they made.

        NotFound if the user is no member. A user may leave an account.
        """
        if not is_member(actor, user_id, account):
            require_owner(actor, account)
        await self._transactions.read(_require_member, user_id, account)
        return await self._keys.revoke_with(actor, user_id, [account], as_current(actor, _remove, user_id, account))

    async def end_left(self, actor: Actor, user_id: str, accounts: Iterable[str]) -> None:
        """End the memberships that claims do not give any more."""
        for account in accounts:
            with suppress(NotFound):  # they have left it meanwhile
                await self.remove(actor, user_id, account)


def require_owner(actor: Actor, account: str) -> None:
    """Forbidden unless the actor decides about members of the account."""
    if not manages_members(actor, account):
        raise Forbidden("This needs the scope 'users', or an owner of the account")


def checked_account_role(role: str) -> AccountRole:
    """The role in an account; InvalidValue for anything else."""
    if role not in ACCOUNT_ROLES:
        raise InvalidValue(f"A role in an account is one of {', '.join(ACCOUNT_ROLES)}", param="role")
    return role


def put_membership(
    connection: Connection, actor: Actor, user: User, account: str, role: str, *, given_by: GivenBy
) -> None:
    """Store the role and its event; no event if the user has it already. The caller has locked the user.

    Another role that a person gives is not that of claims any more, and the sessions end in which that did not count;
    for the same one see `keep_granted`. A changed role ends the open invitations to the account that the user made:
    they may give what the user had before.
    """
    before = user.accounts.get(account, "none")
    if before == role:
        return
    if given_by not in ("claims", "sign-up"):
        take_from_claims(connection, actor, user, account)
    if before == "none":
        row = {"user_id": user.id, "email": user.email, "account": account, "role": role}
        connection.execute(memberships.insert().values(**row, created_at=now(), given_by=given_by))
    else:
        connection.execute(memberships.update().where(*_one(user.id, account)).values(role=role))
        note_giver(connection, user.id, account, given_by)
        end_invitations(connection, user.id, account)
    _record(connection, actor, user.id, account, before, role)


def _own(connection: Connection, actor: Actor, after: str, beginning: str, limit: int) -> list[OwnRole]:
    table = memberships.c
    query = sa.select(table.account).where(table.user_id == actor.id, table.account > after)
    if beginning:
        query = query.where(table.account.startswith(beginning, autoescape=True))
    names = connection.scalars(query.order_by(table.account).limit(limit)).all()
    user = entered_by(connection, user_by_id(connection, actor.id, Roles(names)), issuer_of(connection, actor))
    return [OwnRole(name, user.accounts.get(name, "")) for name in names]


def _has_hidden(connection: Connection, actor: Actor) -> bool:
    given = {account for one in granted_to(connection, actor.id).values() for account in one.accounts}
    user = user_by_id(connection, actor.id, Roles(given))
    counting = entered_by(connection, user, issuer_of(connection, actor))
    return (user.role, user.accounts) != (counting.role, counting.accounts)


def end_membership(connection: Connection, actor: Actor, user: User, account: str) -> None:
    """Take a member out of an account, with the event. The caller has locked the user, and revokes their keys of it."""
    connection.execute(memberships.delete().where(*_one(user.id, account)))
    forget_granted(connection, user.id, account=account)  # another provider may give it afterwards
    end_invitations(connection, user.id, account)
    _record(connection, actor, user.id, account, user.accounts[account], "none")


def _set(
    connection: Connection,
    actor: Actor,
    user_id: str,
    account: str,
    role: str,
    permanent: bool,
    expected_email: str = "",
) -> User:
    try:
        user = lock_user(connection, user_id)
    except NotFound:
        if actor.may("users"):
            raise
        raise _no_member() from None
    if account not in user.accounts and not actor.may("users"):
        raise _no_member()  # the same for users of other accounts and for none
    require_address(user, expected_email)
    current = user.accounts.get(account, "none")
    if current == role and not permanent:
        return user
    _require_may_set(connection, actor, user, account, role)
    if current == role:
        keep_granted(connection, actor, user, account, giver=actor)
    put_membership(connection, actor, user, account, role, given_by=giver_of(actor))
    return user_by_id(connection, user_id)


def _require_may_set(connection: Connection, actor: Actor, user: User, account: str, role: str) -> None:
    """Forbidden, AddressNotProved; the same role is one that is to be permanent."""
    current = user.accounts.get(account, "none")
    before = entered_by(connection, user, "").accounts.get(account, "none")  # claims give it to their person only
    require_role(actor, account, role, before=before)
    require_may_pass_on(connection, actor, role if role != current else "", account)
    require_may_rise(connection, user, before, role)
    if role != current and not may_give_claimed(connection, actor, user, role, account):
        require_by_hand(connection, actor, account)
    if ROLE_RANKS[role] <= ROLE_RANKS[current] and given_by(connection, user, account=account):
        require_by_hand(connection, actor, account)


def _refusal(connection: Connection, actor: Actor, user_id: str, account: str, role: str) -> str:
    try:
        _require_may_set(connection, actor, user_by_id(connection, user_id), account, role)
    except (Forbidden, AddressNotProved) as error:
        return error.message
    return ""


def _remove(connection: Connection, actor: Actor, user_id: str, account: str) -> User:
    end_membership(connection, actor, _member(lock_user, connection, user_id, account), account)
    return user_by_id(connection, user_id)


def _require_member(connection: Connection, user_id: str, account: str) -> None:
    _member(user_by_id, connection, user_id, account)


def _member(find: Callable[[Connection, str], User], connection: Connection, user_id: str, account: str) -> User:
    """NotFound for a user of other accounts and for none alike."""
    with suppress(NotFound):
        user = find(connection, user_id)
        if account in user.accounts:
            return user
    raise _no_member()


def _no_member() -> NotFound:
    return NotFound("There is no such member")


def _one(user_id: str, account: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return memberships.c.user_id == user_id, memberships.c.account == account


def _record(connection: Connection, actor: Actor, user_id: str, account: str, before: str, after: str) -> None:
    sides = {"before": {"role": before}, "after": {"role": after}}
    record(connection, actor, "members.set", f"user:{user_id}", account=account, **sides)
