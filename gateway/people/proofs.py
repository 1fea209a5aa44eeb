"""Whether the address of a user is proved, and what is not given to a user whose address is not.

An address is proved when its holder answered a message that was sent to it and to nobody else, when an identity
provider called it verified, or when an operator says so. Others may have seen each other link, and may have set the
password: such a user gets no further rights by the e-mail address alone.
"""

from __future__ import annotations

from typing import Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS, Actor
from gateway.admin.audit_trail import record
from gateway.admin.times import now
from gateway.admin.user_rows import User
from gateway.database.people_tables import audit_events, identities, sign_in_links, users
from gateway.errors import AddressNotProved
from gateway.people.makers import is_operator

Proof = Literal["mail", "provider", "operator"]


def set_proved(connection: Connection, user_id: str, by: Proof) -> None:
    """Note that the address of a user is proved, without an event."""
    values = {"proved_at": now(), "proved_by": by}
    connection.execute(users.update().where(users.c.id == user_id).values(values))


def prove(connection: Connection, actor: Actor, user: User, by: Proof) -> None:
    """Note that the address of a user is proved, with the event; nothing if it is already.

    Links end that others than operators made: from now on they would give access to a user who gets more.
    """
    if not user.is_proved:
        set_proved(connection, user.id, by)
        end_links_of_others(connection, user)
        record(connection, actor, "users.prove", f"user:{user.id}", before={"proved": "no"}, after={"proved": by})


def end_links_of_others(connection: Connection, user: User) -> None:
    """End the open links of a user that others than operators made: the user gets more than these may do."""
    hashes = _links_of_others(connection, user)
    connection.execute(sign_in_links.delete().where(sign_in_links.c.token_hash.in_(hashes)))


def note_link_of_others(connection: Connection, actor: Actor, user: User) -> None:
    """Note that the actor, who is no operator, gets a link: the next to sign in may be another than the holder."""
    if user.is_proved:
        connection.execute(users.update().where(users.c.id == user.id).values(proved_at=None, proved_by=""))
        sides = {"before": {"proved": user.proved}, "after": {"proved": "no"}}
        record(connection, actor, "users.edit", f"user:{user.id}", **sides)


def require_may_rise(connection: Connection, user: User, before: str, after: str) -> None:
    """AddressNotProved for a higher role of a user whose address is not proved, and who may be somebody else.

    The caller has locked the user.
    """
    if ROLE_RANKS[after] <= ROLE_RANKS[before] or user.is_proved:
        return
    if _has_address_of_others(connection, user):
        raise AddressNotProved(
            "A program, or a person who is no operator, set the e-mail address of this user: if it is the right one, "
            "invite the person, or mark the user as proved"
        )
    if is_claimed(connection, user):
        raise AddressNotProved


def is_claimed(connection: Connection, user: User) -> bool:
    """Whether somebody has signed in as this user, or has a link for it or an address that no operator made."""
    if has_been_entered(connection, user) or _has_link_of_others(connection, user):
        return True
    return _has_address_of_others(connection, user)


def has_been_entered(connection: Connection, user: User) -> bool:
    """Whether somebody has signed in as this user, or can do so without a further link."""
    if user.has_password:
        return True
    if connection.scalar(sa.select(identities.c.issuer).where(identities.c.user_id == user.id).limit(1)) is not None:
        return True
    table = audit_events.c
    by = sa.and_(table.actor_id == user.id, table.actor_kind == "user", table.action == "sessions.start")
    return connection.scalar(sa.select(table.id).where(by).limit(1)) is not None


def _has_link_of_others(connection: Connection, user: User) -> bool:
    return bool(_links_of_others(connection, user))


def _has_address_of_others(connection: Connection, user: User) -> bool:
    """Whether a program, or a person who is no operator, set the address: operators may have meant another person."""
    return bool(connection.scalar(sa.select(users.c.address_set_by).where(users.c.id == user.id)))


def _links_of_others(connection: Connection, user: User) -> list[bytes]:
    """The hashes of the open links of a user that were made by others than operators."""
    table = sign_in_links.c
    is_open = sa.and_(table.used_at.is_(None), table.expires_at > now(), table.purpose == "sign_in")
    query = sa.select(table.token_hash, table.created_by, table.maker_issuer).where(table.user_id == user.id, is_open)
    rows = connection.execute(query).all()
    return [row.token_hash for row in rows if not is_operator(connection, row.created_by, row.maker_issuer)]
