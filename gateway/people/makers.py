"""Who made a link or an invitation, with the rights that they have now."""

from __future__ import annotations

from typing import cast

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor, ActorKind, Scope, command_line
from gateway.admin.granted import entered_by
from gateway.admin.user_rows import user_by_id
from gateway.database.people_tables import admin_tokens
from gateway.errors import NotFound


def maker_of(connection: Connection, name: str, issuer: str) -> Actor:
    """The actor of this name (`KIND:ID`), without rights if they have ended; a token that has expired counts as before.

    What such a token made expires with it. `issuer`: the identity provider of the session of a user, or "".
    """
    kind, _, id_ = name.partition(":")
    nobody = Actor(kind=cast(ActorKind, kind), id=id_)
    if kind == "cli":
        return command_line(id_)
    if kind == "user":
        return _user(connection, id_, issuer) or nobody
    return (_token(connection, id_) if kind == "token" else None) or nobody


def by_hand(connection: Connection, actor: Actor) -> Actor:
    """The actor with the rights that do not come from claims: of a person in any session, and of tokens of such people.

    What claims gave ends with them, and so would the right to what the actor gives.
    """
    nobody = Actor(kind=actor.kind, id=actor.id)
    if actor.kind == "user":
        return _user(connection, actor.id, "") or nobody
    if actor.kind == "token":
        kind, _, id_ = _first_maker(connection, actor.id).partition(":")
        maker = _user(connection, id_, "") if kind == "user" else actor
        return actor if maker is not None and (kind != "user" or maker.is_operator) else nobody
    return actor


def _first_maker(connection: Connection, token_id: str) -> str:
    """The name of who made a token, or the first of the tokens that made it."""
    name: str | None = f"token:{token_id}"
    while name and name.startswith("token:"):  # a token is made after its maker: there is no circle
        query = sa.select(admin_tokens.c.created_by).where(admin_tokens.c.id == name.partition(":")[2])
        name = connection.scalar(query)
    return name or ""


def is_operator(connection: Connection, name: str, issuer: str) -> bool:
    """Whether the actor of this name may do everything now."""
    return maker_of(connection, name, issuer).is_operator


def _user(connection: Connection, user_id: str, issuer: str) -> Actor | None:
    try:
        user = entered_by(connection, user_by_id(connection, user_id), issuer)
    except NotFound:
        return None
    return user.actor("") if user.disabled is None else None


def _token(connection: Connection, token_id: str) -> Actor | None:
    table = admin_tokens.c
    query = sa.select(table.scopes, table.account).where(table.id == token_id, table.revoked_at.is_(None))
    row = connection.execute(query).one_or_none()
    if row is None:
        return None
    scopes = cast("list[Scope]", row.scopes.split())
    return Actor(kind="token", id=token_id, scopes=frozenset(scopes), account=row.account)
