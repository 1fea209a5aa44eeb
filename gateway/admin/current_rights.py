"""Rights that end while a request runs: a change is made only with those that its actor has in the same transaction.

The rights of a request are read when it begins. Its body may take long, and a password is hashed for a while.
"""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS, SITE_SCOPES, Actor
from gateway.admin.granted import entered_by
from gateway.admin.times import now
from gateway.admin.user_rows import lock_operators, lock_user
from gateway.database.people_tables import admin_tokens, sessions, users
from gateway.errors import Forbidden, NotFound, NotSignedIn


def require_current(connection: Connection, actor: Actor) -> None:
    """Forbidden for a user who has lost a right since the request began; NotSignedIn if the session or token has ended.

    They keep their rights until the transaction ends. The command line and the gateway itself lose none.
    """
    if actor.kind == "user":
        _require_user(connection, actor)
    elif actor.kind == "token":
        _require_token(connection, actor)


def issuer_of(connection: Connection, actor: Actor) -> str:
    """The identity provider by which the session of the actor began; "" for any other way, and without a session."""
    if actor.kind != "user" or not actor.session:
        return ""
    return _issuer(connection, actor) or ""


def ends_with(connection: Connection, actor: Actor, end: int | None) -> int | None:
    """When what the actor makes ends: at `end` (microseconds; None: never), but not after a token that makes it."""
    if actor.kind != "token":
        return end
    expires = connection.scalar(sa.select(admin_tokens.c.expires_at).where(admin_tokens.c.id == actor.id))
    ends = [time for time in (end, expires) if time is not None]
    return min(ends, default=None)


def _require_user(connection: Connection, actor: Actor) -> None:
    if actor.is_operator:  # first, and all of them in one order: other changes lock them, too
        lock_operators(connection)
    try:
        user = lock_user(connection, actor.id)
    except NotFound:
        raise Forbidden("This user was erased") from None
    if user.disabled is not None:
        raise Forbidden("This user is disabled")
    issuer = _issuer(connection, actor) if actor.session else ""
    if issuer is None:
        raise NotSignedIn
    user = entered_by(connection, user, issuer)
    keeps_scopes = actor.scopes <= SITE_SCOPES[user.role]
    roles = actor.memberships.items()
    if not keeps_scopes or any(ROLE_RANKS[user.accounts.get(name, "none")] < ROLE_RANKS[role] for name, role in roles):
        raise Forbidden("Your rights have changed since the request began")


def _issuer(connection: Connection, actor: Actor) -> str | None:
    """The provider of the session; None if it has ended, as with a new password and when the user is taken over."""
    table = sessions.c
    query = sa.select(table.issuer).where(table.id == actor.session, table.user_id == actor.id)
    return connection.scalar(query)


def _require_token(connection: Connection, actor: Actor) -> None:
    if actor.is_operator:  # before its own row, as those do who take the rights of its maker
        lock_operators(connection)
    _lock_maker(connection, actor.id)
    table = admin_tokens.c
    query = sa.select(table.revoked_at, table.expires_at).where(table.id == actor.id).with_for_update()
    row = connection.execute(query).one_or_none()  # rows of tokens are never removed
    if row is None:
        return
    is_over = row.expires_at is not None and row.expires_at <= now()
    if row.revoked_at is not None or is_over:
        raise NotSignedIn


def _lock_maker(connection: Connection, token_id: str) -> None:
    """Lock the user who made a token, or the first of the tokens that made it, before the row of the token.

    Transactions that take the rights of that user lock in the same order. Otherwise the two wait for each other.
    """
    table = admin_tokens.c
    makers = sa.select(table.created_by).where(table.id == token_id).cte("makers", recursive=True)
    is_maker = table.id == sa.func.substr(makers.c.created_by, len("token:") + 1)
    makers = makers.union(sa.select(table.created_by).where(is_maker, makers.c.created_by.startswith("token:")))
    for name in connection.scalars(sa.select(makers.c.created_by)).all():
        kind, _, id_ = name.partition(":")
        if kind == "user":
            connection.execute(sa.select(users.c.id).where(users.c.id == id_).with_for_update(key_share=True))
