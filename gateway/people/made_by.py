"""What an actor made and what gives rights to others: it ends with the rights of its maker."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.times import now
from gateway.database.people_tables import admin_tokens, invitations, sign_in_links

NAMES_AT_ONCE = 500  # in one statement


def end_made_by(connection: Connection, actor: Actor, name: str) -> list[str]:
    """End the open invitations and links that an actor made who has lost rights, and revoke its admin tokens.

    `name` is `KIND:ID` of who has lost them, `actor` who takes them. The maker of a token knows its text, and a token
    that makes tokens knows theirs: so what these made ends, too. Returns the ids of the revoked tokens.

    The caller has locked the user or token of `name`. The tokens are locked here before what they made is read: a
    change that one of them makes at this moment has ended then, and what it made is seen.
    """
    tokens = tokens_made_by(connection, name, locks=True)
    for makers in batched([name, *(f"token:{row.id}" for row in tokens)]):
        is_open = sa.and_(invitations.c.created_by.in_(makers), invitations.c.used_at.is_(None))
        connection.execute(invitations.delete().where(is_open))
        connection.execute(sign_in_links.delete().where(sign_in_links.c.created_by.in_(makers)))
    at = now()
    ended = [row for row in tokens if is_active(row, at)]
    for row in ended:
        connection.execute(admin_tokens.update().where(admin_tokens.c.id == row.id).values(revoked_at=at))
        sides = {"before": {"state": "active"}, "after": {"state": "revoked"}}
        record(connection, actor, "tokens.revoke", f"token:{row.id}", account=row.account, **sides)
    return [row.id for row in ended]


def end_invitations(connection: Connection, user_id: str, account: str) -> None:
    """End the open invitations to an account that a user made."""
    made = sa.and_(invitations.c.created_by == f"user:{user_id}", invitations.c.account == account)
    connection.execute(invitations.delete().where(made, invitations.c.used_at.is_(None)))


def forget_maker_issuer(connection: Connection, user_id: str, issuer: str) -> None:
    """Note on what a user made that the connection has ended by which they were signed in."""
    for table in (invitations, sign_in_links):
        made = sa.and_(table.c.created_by == f"user:{user_id}", table.c.maker_issuer == issuer)
        connection.execute(table.update().where(made).values(maker_issuer=""))


def tokens_made_by(connection: Connection, name: str, *, locks: bool = False) -> list[sa.Row[Any]]:
    """The rows of all tokens that an actor made, and of those that these made, and so on, also of ended ones.

    `locks`: until the transaction ends.
    """
    found, makers = list[sa.Row[Any]](), [name]
    query = sa.select(admin_tokens).order_by(admin_tokens.c.created_at, admin_tokens.c.id)
    if locks:
        query = query.with_for_update()
    while makers:  # a token is made after its maker: there is no circle
        asked = (query.where(admin_tokens.c.created_by.in_(some)) for some in batched(makers))
        rows = [row for one in asked for row in connection.execute(one)]
        found += rows
        makers = [f"token:{row.id}" for row in rows]
    return found


def batched(names: list[str]) -> Iterator[list[str]]:
    """Names in parts: a statement takes a limited number of values, and an actor makes any number of tokens."""
    for start in range(0, len(names), NAMES_AT_ONCE):
        yield names[start : start + NAMES_AT_ONCE]


def is_active(row: sa.Row[Any], at: int) -> bool:
    """Whether the token of a row is valid at this moment, in microseconds."""
    return row.revoked_at is None and (row.expires_at is None or row.expires_at > at)
