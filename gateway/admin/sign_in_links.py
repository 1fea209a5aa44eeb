"""Links that work once: to sign in, to set a new password, or for the second step after the password.

An operator hands a link over, or it goes out by e-mail. Only the hash of its token is stored.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Literal

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.random_ids import new_token, token_hash
from gateway.admin.times import MICROSECOND, from_micros
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, require_power_over, user_by_id
from gateway.admin.users import now
from gateway.database.people_tables import sign_in_links, users
from gateway.errors import InvalidLink, InvalidValue

Purpose = Literal["sign_in", "reset", "second_factor"]

LIFETIMES: dict[Purpose, timedelta] = {
    "sign_in": timedelta(hours=24),
    "reset": timedelta(hours=1),
    "second_factor": timedelta(minutes=10),
}
SIGN_IN: tuple[Purpose, ...] = ("sign_in",)
PASSWORD: tuple[Purpose, ...] = ("sign_in", "reset")  # links that may set a password
SECOND_STEP: tuple[Purpose, ...] = ("second_factor",)
MOST_STEPS = 5  # second steps of a user that wait for a code
PATH = "/sign-in/link"  # of the console


class NewLink(Struct, frozen=True):
    """A new link; the only object with its token."""

    user: User
    url: str
    token: str
    expires: datetime

    def __repr__(self) -> str:
        return f"NewLink(user={self.user.id!r}, url='***', expires={self.expires!r})"


class SignInLinks:
    """Makes links for users."""

    def __init__(self, transactions: Transactions, base_url: str) -> None:
        self._transactions = transactions
        self._base = base_url

    async def create(self, actor: Actor, user_id: str) -> NewLink:
        """A link with which the user signs in and may set a password; earlier ones end. It works for 24 hours."""
        actor.require("users")
        user, token, expires = await self._transactions.write(_create, actor, user_id)
        return NewLink(user, f"{self._base}{PATH}?token={token}", token, expires)

    async def create_for_reset(self, email: str) -> NewLink | None:
        """A link for a new password, for an active user with this normalised e-mail; None without one."""
        made = await self._transactions.write(_create_for_reset, email)
        if made is None:
            return None
        user, token, expires = made
        return NewLink(user, f"{self._base}{PATH}?token={token}", token, expires)


def insert_link(connection: Connection, user_id: str, purpose: Purpose, *, arrival: str = "") -> tuple[str, datetime]:
    """A new token and its end; links of the same user and purpose end, and expired ones are removed.

    Of second steps some stay, because two tabs may sign in at the same time. `arrival` is what a second step completes
    after a provider, see `arrival_of`.
    """
    at, token = now(), new_token()
    expires = at + LIFETIMES[purpose] // MICROSECOND
    table = sign_in_links.c
    same = table.purpose == purpose
    if purpose == "second_factor":
        waits = sa.and_(table.user_id == user_id, same, table.used_at.is_(None))
        newest = sa.select(table.token_hash).where(waits).order_by(table.created_at.desc())
        same = sa.and_(same, table.token_hash.not_in(newest.limit(MOST_STEPS - 1)))
    replaced = sa.and_(table.user_id == user_id, sa.or_(same, table.expires_at < at))
    connection.execute(sign_in_links.delete().where(replaced))
    row = {"token_hash": token_hash(token), "user_id": user_id, "purpose": purpose, "arrival": arrival}
    connection.execute(sign_in_links.insert().values(row | {"created_at": at, "expires_at": expires}))
    return token, from_micros(expires)


def find_link(connection: Connection, token: str, purposes: Collection[Purpose]) -> User:
    """The active user of a valid link, which stays valid; InvalidLink for any other."""
    condition = _valid(token, purposes)
    user_id = connection.scalar(sa.select(sign_in_links.c.user_id).where(condition))
    return _active(connection, user_id)


def use_link(connection: Connection, token: str, purposes: Collection[Purpose]) -> User:
    """The active user of a valid link, which is used up; InvalidLink for any other. Only one caller gets it."""
    lock_user(connection, find_link(connection, token, purposes).id)
    update = sign_in_links.update().where(_valid(token, purposes)).values(used_at=now())
    user_id = connection.scalar(update.returning(sign_in_links.c.user_id))
    return _active(connection, user_id)


def arrival_of(connection: Connection, token: str) -> str:
    """What the link of this token remembers of a provider; empty for a link without it, and for an unknown one."""
    query = sa.select(sign_in_links.c.arrival).where(sign_in_links.c.token_hash == token_hash(token))
    return connection.scalar(query) or ""


def delete_second_steps(connection: Connection, user_id: str) -> None:
    """End the second steps of a user that wait for a code."""
    table = sign_in_links.c
    connection.execute(sign_in_links.delete().where(table.user_id == user_id, table.purpose == "second_factor"))


def _valid(token: str, purposes: Collection[Purpose]) -> sa.ColumnElement[bool]:
    table = sign_in_links.c
    fresh = sa.and_(table.used_at.is_(None), table.expires_at > now(), table.purpose.in_(list(purposes)))
    return sa.and_(table.token_hash == token_hash(token), fresh)


def _active(connection: Connection, user_id: str | None) -> User:
    if user_id is None:
        raise InvalidLink
    user = user_by_id(connection, user_id)
    if user.disabled is not None:
        raise InvalidLink
    return user


def _create(connection: Connection, actor: Actor, user_id: str) -> tuple[User, str, datetime]:
    user = user_by_id(connection, user_id)
    require_power_over(actor, user)
    if user.disabled is not None:
        raise InvalidValue("The user is disabled")
    token, expires = insert_link(connection, user_id, "sign_in")
    record(connection, actor, "users.link", f"user:{user_id}")
    return user, token, expires


def _create_for_reset(connection: Connection, email: str) -> tuple[User, str, datetime] | None:
    condition = sa.and_(users.c.email == email, users.c.disabled_at.is_(None))
    user_id = connection.scalar(sa.select(users.c.id).where(condition))
    if user_id is None:
        return None
    user = user_by_id(connection, user_id)
    token, expires = insert_link(connection, user_id, "reset")
    record(connection, Actor(kind="user", id=user_id), "users.link", f"user:{user_id}", after={"for": "reset"})
    return user, token, expires
