"""Identities: which user a person of an identity provider is. A user has at most one at each provider.

Once a user is known by issuer and subject, the e-mail address at the provider does not matter any more.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.oidc.grants import Granted
from gateway.admin.sessions import delete_sessions
from gateway.admin.sign_in_links import delete_second_steps
from gateway.admin.times import from_micros, from_micros_or_none, time_text
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, require_power_over, user_by_id
from gateway.admin.users import now
from gateway.database.people_tables import identities
from gateway.errors import InvalidValue, SignInRefused

TAKEN = "Another user of this gateway is connected with this sign-in"


class Identity(Struct, frozen=True):
    """A connection of a user with an identity provider."""

    issuer: str
    created: datetime
    used: datetime | None

    def json_form(self) -> dict[str, Any]:
        """The JSON document of an identity; the subject is only in the export of the person."""
        return {"issuer": self.issuer, "created": time_text(self.created), "used": time_text(self.used)}


class Identities:
    """Lists and ends connections; `gateway.admin.oidc.sign_in` makes them."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self, actor: Actor, user_id: str) -> list[Identity]:
        """The connections of a user, oldest first; one's own, or with the scope `read` or `users` anybody's."""
        if not (actor.kind == "user" and actor.id == user_id):
            actor.require_read("users")
        return await self._transactions.read(_identities_of, user_id)

    async def end(self, actor: Actor, user_id: str, issuer: str, *, keep: str = "") -> None:
        """End a connection, and the sessions that began with it but the one with the id `keep`.

        InvalidValue if there is none. Nor may one's own be ended if it is the last way to sign in, or if the provider
        gives a role. A user who is left without a way to sign in has no session any more.
        """
        await self._transactions.write(_end, actor, user_id, issuer, keep)

    async def end_all(self, actor: Actor, user_id: str) -> int:
        """End all connections of a user, and sessions as `end` does; returns how many. Needs the scope `users`."""
        return await self._transactions.write(_end_all, actor, user_id)


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


def insert_identity(connection: Connection, actor: Actor, user_id: str, issuer: str, subject: str) -> None:
    """Connect a user, with the event; SignInRefused if the user or the identity is connected already."""
    row = {"issuer": issuer, "subject": subject, "user_id": user_id, "created_at": now(), "granted": "{}"}
    try:
        connection.execute(identities.insert().values(row))
    except sa.exc.IntegrityError:
        raise SignInRefused(TAKEN, detail="other_user") from None
    record(connection, actor, "identities.connect", f"user:{user_id}", after={"issuer": issuer})


def note_use(connection: Connection, issuer: str, subject: str, granted: Granted) -> None:
    """Note a sign-in, and what the provider gives."""
    values = {"used_at": now(), "granted": msgspec.json.encode(granted).decode()}
    connection.execute(identities.update().where(*_one(issuer, subject)).values(values))


def _one(issuer: str, subject: str) -> tuple[sa.ColumnElement[bool], sa.ColumnElement[bool]]:
    return identities.c.issuer == issuer, identities.c.subject == subject


def _identities_of(connection: Connection, user_id: str) -> list[Identity]:
    table = identities.c
    query = sa.select(table.issuer, table.created_at, table.used_at).where(table.user_id == user_id)
    found = connection.execute(query.order_by(table.created_at, table.issuer))
    return [Identity(row.issuer, from_micros(row.created_at), from_micros_or_none(row.used_at)) for row in found]


def _end(connection: Connection, actor: Actor, user_id: str, issuer: str, keep: str) -> None:
    user = lock_user(connection, user_id)
    is_own = actor.kind == "user" and actor.id == user_id
    if not is_own:
        require_power_over(actor, user)
    known = {one.issuer for one in _identities_of(connection, user_id)}
    if issuer not in known:
        raise InvalidValue("There is no such connection", param="issuer")
    if is_own and not user.has_password and len(known) == 1:
        raise InvalidValue("You could not sign in any more: set a password first")
    if is_own and _granted_by(connection, user_id, issuer).is_something:
        # What was given is remembered with the identity: without it nothing would take it back.
        raise InvalidValue("This sign-in service gives you a role: ask your operator to end the connection")
    _delete(connection, actor, user, issuer, keep)


def _granted_by(connection: Connection, user_id: str, issuer: str) -> Granted:
    query = sa.select(identities.c.granted).where(identities.c.user_id == user_id, identities.c.issuer == issuer)
    return msgspec.json.decode(connection.scalars(query).one(), type=Granted)


def _end_all(connection: Connection, actor: Actor, user_id: str) -> int:
    user = lock_user(connection, user_id)
    require_power_over(actor, user)
    found = _identities_of(connection, user_id)
    for one in found:
        _delete(connection, actor, user, one.issuer, "")
    return len(found)


def _delete(connection: Connection, actor: Actor, user: User, issuer: str, keep: str) -> None:
    connection.execute(identities.delete().where(identities.c.user_id == user.id, identities.c.issuer == issuer))
    delete_second_steps(connection, user.id)  # one of them may have begun with this connection
    has_way_in = user.has_password or is_connected(connection, user.id)
    ended = delete_sessions(connection, user.id, keep=keep, issuer=issuer if has_way_in else "")
    before = {"issuer": issuer, "sessions": ended} if ended else {"issuer": issuer}
    record(connection, actor, "identities.end", f"user:{user.id}", before=before)
