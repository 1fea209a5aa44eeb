"""Identities: which user a person of an identity provider is. A user has at most one at each provider.

Once a user is known by issuer and subject, the e-mail address at the provider does not matter any more.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.granted import Granted, granted_to
from gateway.admin.times import from_micros, from_micros_or_none, now, time_text
from gateway.admin.transactions import Transactions, as_current
from gateway.admin.user_rows import User, lock_user, require_power_over, require_reader_of, user_by_id
from gateway.database.people_tables import identities
from gateway.errors import InvalidValue, SignInRefused
from gateway.people.ended_identities import accounts_given, remove_identities
from gateway.people.member_keys import MemberKeys
from gateway.people.sessions import delete_sessions, forget_issuer
from gateway.people.sign_in_links import delete_second_steps

TAKEN = "Another user of this gateway is connected with this sign-in"


class Identity(Struct, frozen=True):
    """A connection of a user with an identity provider."""

    issuer: str
    created: datetime
    used: datetime | None
    gives: list[str] = []  # the roles that count when the person comes by it

    def json_form(self) -> dict[str, Any]:
        """The JSON document of an identity; the subject is only in the export of the person."""
        return {"issuer": self.issuer, "created": time_text(self.created), "used": time_text(self.used)}


class Identities:
    """Lists and ends connections; `gateway.people.oidc.sign_in` makes them."""

    def __init__(self, transactions: Transactions, keys: MemberKeys) -> None:
        self._transactions = transactions
        self._keys = keys

    async def list(self, actor: Actor, user_id: str) -> list[Identity]:
        """The connections of a user, oldest first: one's own, or those that `require_reader_of` lets the actor read."""
        return await self._transactions.read(_list, actor, user_id)

    async def end(self, actor: Actor, user_id: str, issuer: str, *, keep: str = "") -> None:
        """End a connection, and the sessions that began with it but the one with the id `keep`.

        InvalidValue if there is none. Nor may one's own be ended if it is the last way to sign in, or if the provider
        gives a role. A user who is left without a way to sign in has no session any more. What claims gave by the
        connection ends with it: roles, and memberships with their API keys.
        """
        accounts = await self._transactions.write_as(actor, _accounts_that_end, user_id, [issuer])
        await self._keys.revoke_with(actor, user_id, accounts, as_current(actor, _end, user_id, issuer, keep))

    async def end_all(self, actor: Actor, user_id: str) -> int:
        """End all connections of a user, as `end` does; returns how many. Needs the scope `users`."""
        accounts = await self._transactions.write_as(actor, _accounts_that_end, user_id, None)
        return await self._keys.revoke_with(actor, user_id, accounts, as_current(actor, _end_all, user_id))


def user_of_identity(connection: Connection, issuer: str, subject: str) -> tuple[User, Granted] | None:
    """The user of an identity and what the provider gave; None for an unknown one."""
    query = sa.select(identities.c.user_id, identities.c.granted).where(*_one(issuer, subject))
    row = connection.execute(query).one_or_none()
    return (
        None if row is None else (user_by_id(connection, row.user_id), msgspec.json.decode(row.granted, type=Granted))
    )


def has_identity(connection: Connection, user_id: str, issuer: str) -> bool:
    """Whether a user is connected with this provider."""
    return any(one.issuer == issuer for one in _identities_of(connection, user_id))


def is_connected(connection: Connection, user_id: str) -> bool:
    """Whether a user is connected with any provider."""
    return bool(_identities_of(connection, user_id))


def insert_identity(
    connection: Connection, actor: Actor, user_id: str, issuer: str, subject: str, *, is_verified: bool = False
) -> None:
    """Connect a user, with the event; SignInRefused if the user or the identity is connected already.

    `is_verified`: the provider calls the address of the user that of the person.
    """
    row = {"issuer": issuer, "subject": subject, "user_id": user_id, "created_at": now(), "granted": "{}"}
    try:
        connection.execute(identities.insert().values(row | {"verified_at": now() if is_verified else None}))
    except sa.exc.IntegrityError:
        raise SignInRefused(TAKEN, detail="other_user") from None
    record(connection, actor, "identities.connect", f"user:{user_id}", after={"issuer": issuer})


def note_use(connection: Connection, issuer: str, subject: str, granted: Granted, *, is_verified: bool = False) -> None:
    """Note a sign-in, what the provider gives, and if it is so that it calls the address of the user verified."""
    values: dict[str, Any] = {"used_at": now(), "granted": msgspec.json.encode(granted).decode()}
    if is_verified:
        values["verified_at"] = sa.func.coalesce(identities.c.verified_at, now())
    connection.execute(identities.update().where(*_one(issuer, subject)).values(values))


def used_at(connection: Connection, issuer: str, subject: str) -> int:
    """When the identity was used the last time, in microseconds since 1970; 0 before."""
    return connection.scalar(sa.select(identities.c.used_at).where(*_one(issuer, subject))) or 0


def forget_verified(connection: Connection, user_id: str) -> None:
    """Note that no provider has verified the address of the user, which is another one now."""
    connection.execute(identities.update().where(identities.c.user_id == user_id).values(verified_at=None))


def unverified_identities(connection: Connection, user_id: str) -> list[str]:
    """The issuers of the connections by which no provider has verified the address of the user."""
    table = identities.c
    return list(
        connection.scalars(sa.select(table.issuer).where(table.user_id == user_id, table.verified_at.is_(None)))
    )


def _one(issuer: str, subject: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return identities.c.issuer == issuer, identities.c.subject == subject


def _identities_of(connection: Connection, user_id: str) -> list[Identity]:
    table = identities.c
    query = sa.select(table.issuer, table.created_at, table.used_at, table.granted).where(table.user_id == user_id)
    found = connection.execute(query.order_by(table.created_at, table.issuer))
    return [
        Identity(row.issuer, from_micros(row.created_at), from_micros_or_none(row.used_at), _gives(row.granted))
        for row in found
    ]


def _gives(text: str) -> list[str]:
    """Roles as people read them."""
    granted = msgspec.json.decode(text, type=Granted)
    accounts = [f"{role} of {name}" for name, role in sorted(granted.accounts.items()) if name not in granted.ending]
    return [*([granted.site_role] if granted.site_role else []), *accounts]


def _list(connection: Connection, actor: Actor, user_id: str) -> list[Identity]:
    require_reader_of(connection, actor, user_id)
    return _identities_of(connection, user_id)


def _accounts_that_end(connection: Connection, actor: Actor, user_id: str, issuers: Sequence[str] | None) -> list[str]:
    """The accounts that the user leaves; the errors of the end."""
    user = lock_user(connection, user_id)
    if issuers is None:
        require_power_over(actor, user)
    for issuer in issuers or ():
        _require_may_end(connection, actor, user, issuer)
    return accounts_given(connection, user, by=issuers)


def _require_may_end(connection: Connection, actor: Actor, user: User, issuer: str) -> None:
    is_own = actor.kind == "user" and actor.id == user.id
    if not is_own:
        require_power_over(actor, user)
    known = granted_to(connection, user.id)
    if issuer not in known:
        raise InvalidValue("There is no such connection", param="issuer")
    if is_own and not user.has_password and len(known) == 1:
        raise InvalidValue("You could not sign in any more: set a password first")
    if is_own and known[issuer].is_something:
        raise InvalidValue("This sign-in service gives you a role: ask your operator to end the connection")


def _end(connection: Connection, actor: Actor, user_id: str, issuer: str, keep: str) -> None:
    user = lock_user(connection, user_id)
    _require_may_end(connection, actor, user, issuer)
    end_identity(connection, actor, user, issuer, keep=keep)


def _end_all(connection: Connection, actor: Actor, user_id: str) -> int:
    user = lock_user(connection, user_id)
    require_power_over(actor, user)
    issuers = granted_to(connection, user_id)
    for issuer in issuers:
        end_identity(connection, actor, user, issuer)
    return len(issuers)


def end_identity(connection: Connection, actor: Actor, user: User, issuer: str, *, keep: str = "") -> None:
    """End a connection with its sessions, with the event. The caller revokes the keys of `accounts_given`."""
    remove_identities(connection, actor, user, [issuer])
    delete_second_steps(connection, user.id)  # one of them may have begun with this connection
    has_way_in = user.has_password or is_connected(connection, user.id)
    ended = delete_sessions(connection, user.id, keep=keep, issuer=issuer if has_way_in else "")
    forget_issuer(connection, user.id, issuer)  # of the session that is kept
    before = {"issuer": issuer, "sessions": ended} if ended else {"issuer": issuer}
    record(connection, actor, "identities.end", f"user:{user.id}", before=before)
