"""Users: create, find, list, change, disable, enable. `gateway.people.personal_data` erases them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS, SITE_ROLES, Actor, SiteRole
from gateway.admin.audit_event import changes
from gateway.admin.audit_trail import record
from gateway.admin.granted import entered_by, forget_granted, given_by, granted_to
from gateway.admin.pages import MOST, READ_AT_MOST
from gateway.admin.times import now
from gateway.admin.transactions import Transactions, as_current
from gateway.admin.user_rows import (
    User,
    has_operator,
    lock_user,
    lock_user_and_operators,
    named,
    require_address,
    require_power_over,
    user_by_id,
    user_of,
    users_of,
)
from gateway.admin.values import checked_name, known_email, normal_email
from gateway.database.people_tables import sessions, sign_in_links, sign_ups, users
from gateway.errors import AddressNotProved, AlreadyExists, Forbidden, InvalidValue, LastOperator, NotFound
from gateway.people.ended_identities import accounts_given
from gateway.people.entry_rights import require_entry
from gateway.people.identities import end_identity, forget_verified
from gateway.people.invitation_rows import forget_address
from gateway.people.made_by import end_made_by
from gateway.people.member_keys import MemberKeys
from gateway.people.proofs import Proof, prove, require_may_rise, set_proved
from gateway.people.random_ids import new_id
from gateway.people.role_rights import keep_granted, require_by_hand, require_may_pass_on, take_from_claims
from gateway.people.sessions import delete_sessions


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
        return await self._transactions.write_as(actor, _create, email, name, role)

    async def show(self, actor: Actor, user_id: str) -> User:
        """One user; a user may see themselves."""
        if actor.id != user_id or actor.kind != "user":
            actor.require_read("users")
        return await self._transactions.read(user_by_id, user_id)

    async def find(self, actor: Actor, email: str) -> User:
        """The user with this e-mail; NotFound if there is none."""
        actor.require_read("users")
        email = known_email(email)
        user = await self._transactions.read(user_of, users.c.email == email)
        if user is None:
            raise NotFound(f"There is no user {email}")
        return user

    async def list(
        self, actor: Actor, *, after: str = "", containing: str = "", proved: bool | None = None, limit: int = MOST
    ) -> list[User]:
        """Users by e-mail, those behind the e-mail `after`, at most `READ_AT_MOST`.

        Their e-mail or name has `containing`. `proved`: only those whose address is proved, or is not.
        """
        actor.require_read("users")
        table = users.c
        query = sa.select(users).where(table.email > after).order_by(table.email).limit(min(limit, READ_AT_MOST))
        if containing:
            query = query.where(named(containing))
        if proved is not None:
            query = query.where(table.proved_at.is_not(None) if proved else table.proved_at.is_(None))
        return await self._transactions.read(users_of, query)

    async def by_ids(self, actor: Actor, ids: Collection[str]) -> Sequence[User]:
        """Those of these users who are there; at most 1,000."""
        actor.require_read("users")
        query = sa.select(users).where(users.c.id.in_(sorted(ids)[:MOST]))
        return await self._transactions.read(users_of, query)

    async def edit(
        self, actor: Actor, user_id: str, edited: UserChanges, *, permanent: bool = False, expected_email: str = ""
    ) -> User:
        """Change a user; a user may change their own name. LastOperator, AlreadyExists.

        A new e-mail ends the user's links and is not proved. One that is not of an operator ends sessions and
        connections with providers too, with what claims gave by them. A new role ends the open links and invitations
        that the user made, and their admin tokens. AddressNotProved for a higher role of a user who may be somebody
        else.
        The role that claims give stays one of claims, unless `permanent`: see `Memberships.set`.
        AddressChanged if the user has another e-mail than `expected_email`.
        """
        wanted = _checked(edited)
        if permanent and "role" not in wanted:
            raise InvalidValue("Say which role is to be permanent", param="permanent")
        if not (actor.kind == "user" and actor.id == user_id and set(wanted) <= {"name"}):
            actor.require("users")
        left = list[str]()
        if "email" in wanted and not actor.is_operator:
            left = await self._transactions.write_as(actor, _accounts_that_end, user_id, wanted)
        change = as_current(actor, edit_user, user_id, wanted, permanent=permanent, expected_email=expected_email)
        return await self._keys.revoke_with(actor, user_id, left, change)

    async def refusal(self, actor: Actor, user_id: str, role: SiteRole) -> str:
        """Why another role on the site would be refused now; "" if it would not. `user_id`: "" for a new user."""
        return await self._transactions.read(_refusal, actor, user_id, role)

    async def prove(self, actor: Actor, user_id: str, *, expected_email: str = "") -> User:
        """Mark the address of a user as proved: the operator knows who the user is. It may be repeated.

        AddressChanged if the user has another e-mail than `expected_email`.
        """
        actor.require_operator()
        return await self._transactions.write_as(actor, _prove, user_id, expected_email)

    async def disable(self, actor: Actor, user_id: str) -> User:
        """Keep the user from signing in, and disable their keys; sessions and links end, and what they made.

        It may be repeated after a failure of the store.
        """
        actor.require("users")
        user = await self._transactions.write_as(actor, _disable, user_id)
        await self._keys.disable_all(actor, user)
        return user

    async def enable(self, actor: Actor, user_id: str) -> User:
        """Undo `disable`; the user signs in again, and their keys work again."""
        actor.require("users")
        user = await self._transactions.write_as(actor, _enable, user_id)
        await self._keys.enable_all(actor, user)
        return user


def checked_role(role: str) -> SiteRole:
    """The role on the site; InvalidValue for anything else."""
    if role not in SITE_ROLES:
        raise InvalidValue(f"A role on the site is one of {', '.join(SITE_ROLES)}", param="role")
    return role


def insert_user(
    connection: Connection,
    actor: Actor,
    email: str,
    name: str,
    role: str,
    *,
    user_id: str = "",
    proof: Proof | None = None,
) -> User:
    """Add a user of checked values, with this new id if one is given; AlreadyExists if the e-mail is taken.

    Links to sign up with the e-mail end. `proof`: what proves the address.
    """
    user_id = user_id or new_id("usr")
    email = normal_email(email)  # that of an invitation may have been stored by an earlier version
    values = {"id": user_id, "email": email, "name": name, "role": role, "created_at": now()}
    try:
        connection.execute(users.insert().values(values))
    except sa.exc.IntegrityError:
        raise AlreadyExists(f"There is a user {email} already", param="email") from None
    connection.execute(sign_ups.delete().where(sign_ups.c.email == email))
    after: dict[str, Any] = {"role": role, "personal": ["email", "name"] if name else ["email"]}
    if proof is not None:
        set_proved(connection, user_id, proof)
        after["proved"] = proof
    record(connection, actor, "users.create", f"user:{user_id}", after=after)
    return user_by_id(connection, user_id)


def _create(connection: Connection, actor: Actor, email: str, name: str, role: str) -> User:
    require_may_pass_on(connection, actor, role)
    return insert_user(connection, actor, email, name, role)


def end_access(connection: Connection, actor: Actor, user_id: str) -> None:
    """End the user's sessions and links, and what they made: open links and invitations, and admin tokens."""
    connection.execute(sessions.delete().where(sessions.c.user_id == user_id))
    end_links(connection, user_id)
    end_made_by(connection, actor, f"user:{user_id}")


def end_links(connection: Connection, user_id: str) -> None:
    """End the links of a user."""
    connection.execute(sign_in_links.delete().where(sign_in_links.c.user_id == user_id))


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


def edit_user(
    connection: Connection,
    actor: Actor,
    user_id: str,
    wanted: dict[str, Any],
    *,
    permanent: bool = False,
    expected_email: str = "",
) -> User:
    """Change columns to checked values, with the event; LastOperator, AlreadyExists, AddressChanged, Forbidden."""
    user = user_by_id(connection, user_id)
    _require_may_edit(connection, actor, user, wanted)
    if not wanted:
        return user
    is_last = False
    if "role" in wanted:
        user, is_last = lock_user_and_operators(connection, user_id)
    else:
        user = lock_user(connection, user_id)
    _require_may_edit(connection, actor, user, wanted)  # again: the user may have got more meanwhile
    require_address(user, expected_email)
    if wanted.get("role", user.role) != user.role:  # as the lock has found it
        actor.require_operator()
        if is_last:
            raise LastOperator
    if "role" in wanted and actor.kind != "system":  # claims of a provider are those of its person
        _give_by_hand(connection, actor, user, wanted["role"], permanent=permanent)
    if wanted.get("email", user.email) != user.email:
        wanted = wanted | {"proved_at": None, "proved_by": ""}  # that was the old address
        wanted["address_set_by"] = "" if actor.is_operator else actor.name
    try:
        connection.execute(users.update().where(users.c.id == user_id).values(wanted))
    except sa.exc.IntegrityError:
        raise AlreadyExists(f"There is a user {wanted['email']} already", param="email") from None
    changed = user_by_id(connection, user_id)
    if changed.email != user.email:
        end_links(connection, user_id)  # they may have gone to the old address
        forget_verified(connection, user_id)
        forget_address(connection, user_id, user.email)
        if not actor.is_operator:
            _end_ways_in(connection, actor, changed)
            changed = user_by_id(connection, user_id)
    if changed.role != user.role:
        end_made_by(connection, actor, f"user:{user_id}")
    before, after = changes(_public(user), _public(changed))
    personal = [field for field in ("email", "name") if getattr(user, field) != getattr(changed, field)]
    if personal:
        after = {**after, "personal": personal}
    record(connection, actor, "users.edit", f"user:{user_id}", before=before, after=after)
    return changed


def _give_by_hand(connection: Connection, actor: Actor, user: User, role: str, *, permanent: bool) -> None:
    """Give a role as a person: another one, or that of claims for every session. The caller has locked the user."""
    if role == user.role and not permanent:
        return
    _require_may_give(connection, actor, user, role)
    if role == user.role:
        keep_granted(connection, actor, user, giver=actor)
    elif role == "none":
        forget_granted(connection, user.id)
    else:
        take_from_claims(connection, actor, user)


def _require_may_give(connection: Connection, actor: Actor, user: User, role: str) -> None:
    """Forbidden, AddressNotProved; the same role is one that is to be permanent."""
    require_may_rise(connection, user, entered_by(connection, user, "").role, role)
    stays = role != "none" and ROLE_RANKS[role] <= ROLE_RANKS[user.role]
    if stays and given_by(connection, user):
        require_by_hand(connection, actor, "")
    if role != user.role:
        require_may_pass_on(connection, actor, role)


def _refusal(connection: Connection, actor: Actor, user_id: str, role: str) -> str:
    try:
        if user_id:
            _require_may_give(connection, actor, user_by_id(connection, user_id), role)
        else:
            require_may_pass_on(connection, actor, role)
    except (Forbidden, AddressNotProved) as error:
        return error.message
    return ""


def _require_may_edit(connection: Connection, actor: Actor, user: User, wanted: Mapping[str, Any]) -> None:
    if set(wanted) - {"name"} or actor.id != user.id:
        require_power_over(actor, user)
    if wanted.keys() & {"email", "totp_secret"}:  # a password can be set anew at another address
        require_entry(connection, actor, user)


def _accounts_that_end(connection: Connection, actor: Actor, user_id: str, wanted: Mapping[str, Any]) -> list[str]:
    """The accounts that a user leaves with another address."""
    user = user_by_id(connection, user_id)
    _require_may_edit(connection, actor, user, wanted)
    return accounts_given(connection, user) if wanted["email"] != user.email else []


def _end_ways_in(connection: Connection, actor: Actor, user: User) -> None:
    """End connections and sessions: whoever has the new address gets nothing that claims give to another person."""
    for issuer in granted_to(connection, user.id):
        end_identity(connection, actor, user, issuer)
    if ended := delete_sessions(connection, user.id):
        record(connection, actor, "sessions.end", f"user:{user.id}", before={"sessions": ended})


def _public(user: User) -> dict[str, Any]:
    return {"role": user.role, "has_second_factor": user.has_second_factor, "proved": user.proved}


def _prove(connection: Connection, actor: Actor, user_id: str, expected_email: str) -> User:
    user = lock_user(connection, user_id)
    require_address(user, expected_email)
    prove(connection, actor, user, "operator")
    return user_by_id(connection, user_id)


def _disable(connection: Connection, actor: Actor, user_id: str) -> User:
    user = user_by_id(connection, user_id)
    require_power_over(actor, user)
    if actor.kind == "user" and actor.id == user_id:
        raise Forbidden("Users cannot disable themselves")
    if user.disabled is not None:
        return user
    user, is_last = lock_user_and_operators(connection, user_id)
    require_power_over(actor, user)  # again: the user may have got more meanwhile
    if is_last:
        raise LastOperator
    connection.execute(users.update().where(users.c.id == user_id).values(disabled_at=now()))
    end_access(connection, actor, user_id)
    sides = {"before": {"state": "active"}, "after": {"state": "disabled"}}
    record(connection, actor, "users.disable", f"user:{user_id}", **sides)
    return user_by_id(connection, user_id)


def _enable(connection: Connection, actor: Actor, user_id: str) -> User:
    user = lock_user(connection, user_id)
    require_power_over(actor, user)
    if user.disabled is None:
        return user
    connection.execute(users.update().where(users.c.id == user_id).values(disabled_at=None))
    sides = {"before": {"state": "disabled"}, "after": {"state": "active"}}
    record(connection, actor, "users.enable", f"user:{user_id}", **sides)
    return user_by_id(connection, user_id)
