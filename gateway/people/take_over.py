"""Ends all by which somebody else may still be a user, when the holder of the address takes the user over.

A user who got a role from others than owners is not taken over without the password and the code. Otherwise a provider
could give this role to any person by verifying the address for them.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.granted import entered_by, granted_to
from gateway.admin.user_rows import User, user_by_id
from gateway.database.people_tables import memberships, users
from gateway.people.ended_identities import hand_over_grants, kept_for_operator, remove_identities
from gateway.people.identities import end_identity, unverified_identities
from gateway.people.made_by import end_made_by
from gateway.people.memberships import end_membership
from gateway.people.proofs import prove
from gateway.people.sessions import delete_sessions
from gateway.people.users import end_links


def may_be_taken_over(connection: Connection, user: User) -> bool:
    """Whether the holder of the address becomes the user without the password and the code.

    Not if the address is proved, nor if the user has a role on the site, or a membership from others than owners: from
    an operator, the command line, a program of the site, or a sign-up with an account of its own. Memberships that
    claims gave end with their connection, and those that owners gave end with `take_over_by_address`.
    """
    if user.is_proved or entered_by(connection, user, "").role != "none":
        return False
    if any("" in one.over for one in granted_to(connection, user.id).values()):  # a person gave it, claims raised it
        return False
    return _givers(connection, user.id) <= {"owner", "claims"}


def take_over_by_address(connection: Connection, actor: Actor, user: User, *, keep_issuer: str = "") -> None:
    """`take_over` by a person whose address a provider has verified: memberships that owners gave end, too.

    The owners may have meant another person than the one who made the user.
    """
    take_over(connection, actor, user, keep_issuer=keep_issuer)
    user = user_by_id(connection, user.id)
    for account in user.accounts:
        end_membership(connection, actor, user, account)


def take_over(
    connection: Connection, actor: Actor, user: User, *, keep_issuer: str = "", keeps_second_factor: bool = False
) -> None:
    """End the password, second factor, sessions, links, connections and tokens of a user, and what these made.

    What claims gave by the connections ends with them. A connection whose claims give the role of the last operator
    stays: this role counts only where its person comes by the provider.
    `keep_issuer`: the provider by which the holder comes. The caller has locked the user, and ends their API keys.
    """
    values = {"password_hash": None, "password_set_at": None}
    if not keeps_second_factor:
        values |= {"totp_secret": None, "totp_step": None}
    connection.execute(users.update().where(users.c.id == user.id).values(values))
    tokens = end_made_by(connection, actor, f"user:{user.id}")
    before = _end_ways_in(connection, actor, user, keep_issuer)
    before |= {"second_factor": user.has_second_factor and not keeps_second_factor}
    record(connection, actor, "users.take_over", f"user:{user.id}", before=before | {"tokens": sorted(tokens)})


def prove_by_provider(connection: Connection, actor: Actor, user: User, issuer: str) -> None:
    """The provider vouches for the address: the person who comes from there is the user from now on.

    Nothing for a user whose address is proved. Else password, sessions, links and other connections end. API keys,
    tokens and the second factor stay: the person has given the password or the code, or nobody has entered before.
    So does the connection of the last operator, as in `take_over`.
    `apply_grants` follows, and takes back what claims gave by the other connections.
    """
    if user.is_proved:
        return
    values = {"password_hash": None, "password_set_at": None}
    connection.execute(users.update().where(users.c.id == user.id).values(values))
    hand_over_grants(connection, user.id, issuer, _others(connection, user, issuer))
    before = _end_ways_in(connection, actor, user, issuer)
    if any(before.values()):
        record(connection, actor, "users.take_over", f"user:{user.id}", before=before)
    prove(connection, actor, user, "provider")


def ended_by_password(connection: Connection, user: User) -> list[str]:
    """The issuers of the connections that end with a new password by a link: those that another person may have made.

    Whoever had a session may have connected themselves. A connection whose provider verified the address stays: its
    person is the holder of the address. So does that of the last operator, as in `take_over`.
    """
    ended = unverified_identities(connection, user.id)
    kept = kept_for_operator(connection, user, ended)
    return [issuer for issuer in ended if issuer not in kept]


def end_unverified(connection: Connection, actor: Actor, user: User) -> None:
    """End the connections of `ended_by_password`. The caller revokes the keys of their accounts."""
    for issuer in ended_by_password(connection, user):
        end_identity(connection, actor, user, issuer)


def _others(connection: Connection, user: User, keep_issuer: str) -> list[str]:
    """The issuers of the connections that end when the person of another one, or of the password, is the user."""
    ended = [issuer for issuer in granted_to(connection, user.id) if issuer != keep_issuer]
    kept = kept_for_operator(connection, user, ended)
    return [issuer for issuer in ended if issuer not in kept]


def _end_ways_in(connection: Connection, actor: Actor, user: User, keep_issuer: str) -> dict[str, object]:
    """End sessions, links and connections; what the event says of it."""
    issuers = remove_identities(connection, actor, user, _others(connection, user, keep_issuer))
    ended = delete_sessions(connection, user.id)
    end_links(connection, user.id)
    return {"password": user.has_password, "sessions": ended, "identities": issuers}


def _givers(connection: Connection, user_id: str) -> set[str]:
    """Who gave the memberships of a user."""
    table = memberships.c
    return set(connection.scalars(sa.select(table.given_by).where(table.user_id == user_id).distinct()))
