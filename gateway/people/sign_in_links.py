"""Links that work once: to sign in, to set a new password, or for the second step after the password.

An operator hands a link over, or it goes out by e-mail. Only the hash of its token is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Literal

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.current_rights import ends_with, issuer_of
from gateway.admin.times import MICROSECOND, from_micros, now
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, require_address, require_power_over, user_by_id
from gateway.database.people_tables import sign_in_links, users
from gateway.errors import InvalidLink, InvalidValue
from gateway.people.entry_rights import maker_leads_into, require_entry
from gateway.people.proofs import note_link_of_others
from gateway.people.random_ids import new_token, token_hash

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
MOST_RESETS = 20  # links for a new password of a user: more than the messages that an address gets while one is valid
#: Of these, earlier ones stay: two tabs sign in at once, and a stranger who asks for a new password ends no link.
STAYING: Mapping[Purpose, int] = {"second_factor": MOST_STEPS, "reset": MOST_RESETS}
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

    async def create(self, actor: Actor, user_id: str, *, expected_email: str = "") -> NewLink:
        """A link with which the user signs in and may set a password; earlier ones end. It works for 24 hours.

        Forbidden for an actor that may not give access to the user, see `gateway.people.entry_rights`. Of an actor who
        is no operator, the address of the user is not proved any more. AddressChanged if the user has another one than
        `expected_email`.
        """
        actor.require("users")
        user, token, expires = await self._transactions.write_as(actor, _create, user_id, expected_email)
        return NewLink(user, f"{self._base}{PATH}?token={token}", token, expires)

    async def active_user(self, email: str) -> str:
        """The id of the active user with this normalised e-mail; empty without one."""
        return await self._transactions.read(_active, email)

    async def create_for_reset(self, email: str, *, is_recorded: bool = True) -> NewLink | None:
        """A link for a new password, for an active user with this normalised e-mail; None without one.

        `is_recorded`: with an event.
        """
        made = await self._transactions.write(_create_for_reset, email, is_recorded)
        if made is None:
            return None
        user, token, expires = made
        return NewLink(user, f"{self._base}{PATH}?token={token}", token, expires)


def insert_link(
    connection: Connection, user_id: str, purpose: Purpose, *, arrival: str = "", maker: Actor | None = None
) -> tuple[str, datetime]:
    """A new token and its end; links of the same user and purpose end, and expired ones are removed.

    Of second steps and links for a new password some stay. `arrival` is what a second step completes after a provider,
    see `arrival_of`.
    """
    at, token = now(), new_token()
    expires = at + LIFETIMES[purpose] // MICROSECOND
    if maker is not None:
        expires = ends_with(connection, maker, expires) or expires
    table = sign_in_links.c
    same = table.purpose == purpose
    if stay := STAYING.get(purpose):
        waits = sa.and_(table.user_id == user_id, same, table.used_at.is_(None))
        newest = sa.select(table.token_hash).where(waits).order_by(table.created_at.desc())
        same = sa.and_(same, table.token_hash.not_in(newest.limit(stay - 1)))
    replaced = sa.and_(table.user_id == user_id, sa.or_(same, table.expires_at < at))
    connection.execute(sign_in_links.delete().where(replaced))
    row = {"token_hash": token_hash(token), "user_id": user_id, "purpose": purpose, "arrival": arrival}
    if maker is not None:
        row |= {"created_by": maker.name, "maker_issuer": issuer_of(connection, maker)}
    connection.execute(sign_in_links.insert().values(row | {"created_at": at, "expires_at": expires}))
    return token, from_micros(expires)


def find_link(connection: Connection, token: str, purposes: Collection[Purpose]) -> User:
    """The active user of a valid link, which stays valid; InvalidLink for any other.

    A link gives access to the user only while its maker may give it, see `gateway.people.entry_rights`.
    """
    table = sign_in_links.c
    query = sa.select(table.user_id, table.purpose, table.created_by, table.maker_issuer).where(_valid(token, purposes))
    row = connection.execute(query).one_or_none()
    if row is None:
        raise InvalidLink
    user = user_by_id(connection, row.user_id)
    may = row.purpose != "sign_in" or maker_leads_into(connection, row.created_by, row.maker_issuer, user)
    if user.disabled is not None or not may:
        raise InvalidLink
    return user


def use_link(connection: Connection, token: str, purposes: Collection[Purpose]) -> User:
    """The active user of a valid link, which is used up; InvalidLink for any other. Only one caller gets it."""
    lock_user(connection, find_link(connection, token, purposes).id)
    user = find_link(connection, token, purposes)  # as the lock has found it
    update = sign_in_links.update().where(_valid(token, purposes)).values(used_at=now())
    if connection.scalar(update.returning(sign_in_links.c.user_id)) is None:
        raise InvalidLink
    return user


def arrival_of(connection: Connection, token: str) -> str:
    """What the link of this token remembers of a provider; empty for a link without it, and for an unknown one."""
    query = sa.select(sign_in_links.c.arrival).where(sign_in_links.c.token_hash == token_hash(token))
    return connection.scalar(query) or ""


def purpose_of(connection: Connection, token: str) -> str:
    """The purpose of the link of this token, used or not; empty for an unknown one."""
    query = sa.select(sign_in_links.c.purpose).where(sign_in_links.c.token_hash == token_hash(token))
    return connection.scalar(query) or ""


def delete_second_steps(connection: Connection, user_id: str) -> None:
    """End the second steps of a user that wait for a code."""
    table = sign_in_links.c
    connection.execute(sign_in_links.delete().where(table.user_id == user_id, table.purpose == "second_factor"))


def delete_resets(connection: Connection, user_id: str) -> None:
    """End the links for a new password of a user that are not used."""
    table = sign_in_links.c
    unused = sa.and_(table.purpose == "reset", table.used_at.is_(None))
    connection.execute(sign_in_links.delete().where(table.user_id == user_id, unused))


def _valid(token: str, purposes: Collection[Purpose]) -> sa.ColumnElement[bool]:
    table = sign_in_links.c
    fresh = sa.and_(table.used_at.is_(None), table.expires_at > now(), table.purpose.in_(list(purposes)))
    return sa.and_(table.token_hash == token_hash(token), fresh)


def _create(connection: Connection, actor: Actor, user_id: str, expected_email: str = "") -> tuple[User, str, datetime]:
    user = lock_user(connection, user_id)
    require_power_over(actor, user)
    require_address(user, expected_email)
    require_entry(connection, actor, user)
    if user.disabled is not None:
        raise InvalidValue("The user is disabled")
    token, expires = insert_link(connection, user_id, "sign_in", maker=actor)
    record(connection, actor, "users.link", f"user:{user_id}")
    if not actor.is_operator:
        note_link_of_others(connection, actor, user)
    return user_by_id(connection, user_id), token, expires


def _active(connection: Connection, email: str) -> str:
    query = sa.select(users.c.id).where(users.c.email == email, users.c.disabled_at.is_(None))
    return connection.scalar(query) or ""


def _create_for_reset(connection: Connection, email: str, is_recorded: bool) -> tuple[User, str, datetime] | None:
    user_id = connection.scalar(sa.select(users.c.id).where(users.c.email == email))
    if user_id is None:
        return None
    user = lock_user(connection, user_id)
    if user.email != email or user.disabled is not None:  # changed meanwhile
        return None
    token, expires = insert_link(connection, user_id, "reset")
    if is_recorded:
        record(connection, Actor(kind="user", id=user_id), "users.link", f"user:{user_id}", after={"for": "reset"})
    return user, token, expires
