"""What is stored about a person: exported for them, and erased.

Erasing removes the user with everything that names or describes the person. What stays is the opaque user id in the
audit trail and in ledger lines, which then leads to nobody.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import event_of, record
from gateway.admin.invitations import invitations_of
from gateway.admin.member_keys import MemberKeys
from gateway.admin.sessions import sessions_of
from gateway.admin.times import from_micros, from_micros_or_none, time_text
from gateway.admin.tokens import tokens_by
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, require_another_operator, require_power_over, user_by_id
from gateway.admin.users import end_access
from gateway.amounts import format_amount
from gateway.database.people_tables import (
    audit_events,
    identities,
    invitations,
    memberships,
    sign_in_links,
    sign_ups,
    users,
)
from gateway.database.tables import usage_daily
from gateway.errors import Forbidden


class PersonalData:
    """Export and erasure, by an operator or by the person. `long_reads` are transactions of long queries."""

    def __init__(self, transactions: Transactions, keys: MemberKeys, long_reads: Transactions) -> None:
        self._transactions = transactions
        self._keys = keys
        self._long_reads = long_reads

    async def export(self, actor: Actor, user_id: str) -> dict[str, Any]:
        """Everything that is stored about a user, as a JSON document; secrets are named, not shown.

        Forbidden, NotFound. The event is written after the reading, and nothing is given out without it.
        """
        if not (actor.kind == "user" and actor.id == user_id):
            actor.require("users")
        document = await self._long_reads.read(_export, actor, user_id)
        keys = await self._keys.list(actor, user_id)
        await self._transactions.write(_record_export, actor, user_id)
        return document | {"keys": [key.json_form() for key in keys]}

    async def erase(self, actor: Actor, user_id: str) -> None:
        """Erase a user for good, and revoke their keys; LastOperator, NotFound."""
        actor.require("users")
        user = await self._transactions.write(_erasable, actor, user_id)
        await self._keys.revoke_all(actor, user_id, user.accounts)  # before: it can be repeated if the store fails
        await self._transactions.write(_erase, actor, user_id)
        await self._keys.revoke_all(actor, user_id, user.accounts)  # keys that were created meanwhile


def _export(connection: Connection, actor: Actor, user_id: str) -> dict[str, Any]:
    user = _exported(connection, actor, user_id)
    password_set = connection.scalar(sa.select(users.c.password_set_at).where(users.c.id == user_id))
    return {
        "user": user.json_form() | {"password_set": time_text(from_micros_or_none(password_set))},
        "identities": _rows(connection, identities, user_id, "issuer", "subject"),
        "memberships": _rows(connection, memberships, user_id, "account", "role"),
        "links": _rows(connection, sign_in_links, user_id, "purpose"),
        "sessions": [session.json_form() for session in sessions_of(connection, user_id)],
        "invitations": [invitation.json_form() for invitation in invitations_of(connection, user.email)],
        "tokens": [token.json_form() for token in tokens_by(connection, f"user:{user_id}")],
        "usage": _usage(connection, user_id),
        "audit_events": _events(connection, user_id),
    }


def _exported(connection: Connection, actor: Actor, user_id: str) -> User:
    user = user_by_id(connection, user_id)
    if actor.id != user_id:
        require_power_over(actor, user)
    return user


def _record_export(connection: Connection, actor: Actor, user_id: str) -> None:
    """Note the export of a user who is still there: events of erased people have no address."""
    _exported(connection, actor, user_id)
    record(connection, actor, "users.export", f"user:{user_id}")


def _rows(connection: Connection, table: sa.Table, user_id: str, *names: str) -> list[dict[str, Any]]:
    columns = [table.c[name] for name in (*names, "created_at")]
    query = sa.select(*columns).where(table.c.user_id == user_id).order_by(table.c.created_at)
    return [
        {name: row[name] for name in names} | {"created": time_text(from_micros(row["created_at"]))}
        for row in connection.execute(query).mappings()
    ]


def _usage(connection: Connection, user_id: str) -> list[dict[str, Any]]:
    """What the keys of the user were used for, by day, account, key and model."""
    table = usage_daily.c
    labels = [table.day, table.account, table.key_id, table.model]
    query = sa.select(*labels, sa.func.sum(table.calls), sa.func.sum(table.cost)).where(table.user_id == user_id)
    return [
        {
            "day": f"{from_micros(row[0]):%Y-%m-%d}",
            "account": row[1],
            "key": row[2],
            "model": row[3],
            "calls": int(row[4]),
            "cost": format_amount(int(row[5])),
        }
        for row in connection.execute(query.group_by(*labels).order_by(*labels))
    ]


def _events(connection: Connection, user_id: str) -> list[dict[str, Any]]:
    """What the user did, and what others did to the user; addresses of those others are not the user's data."""
    by = sa.and_(audit_events.c.actor_kind == "user", audit_events.c.actor_id == user_id)
    query = sa.select(audit_events).where(sa.or_(by, audit_events.c.object == f"user:{user_id}"))
    found = [event_of(row) for row in connection.execute(query.order_by(audit_events.c.at))]
    own = "user", user_id
    return [
        event.json_form() | ({} if (event.actor_kind, event.actor_id) == own else {"address": ""}) for event in found
    ]


def _erasable(connection: Connection, actor: Actor, user_id: str) -> User:
    user = user_by_id(connection, user_id)
    require_power_over(actor, user)
    if actor.kind == "user" and actor.id == user_id:
        raise Forbidden("Users cannot erase themselves")
    require_another_operator(connection, user_id)
    return user


def _erase(connection: Connection, actor: Actor, user_id: str) -> None:
    _erasable(connection, actor, user_id)
    user = lock_user(connection, user_id)
    end_access(connection, user_id)
    connection.execute(invitations.delete().where(invitations.c.email == user.email))
    connection.execute(sign_ups.delete().where(sign_ups.c.email == user.email))
    connection.execute(users.delete().where(users.c.id == user_id))  # with what refers to it
    own = sa.and_(audit_events.c.actor_kind == "user", audit_events.c.actor_id == user_id)
    connection.execute(audit_events.update().where(own).values(address=""))
    record(connection, actor, "users.erase", f"user:{user_id}", before={"role": user.role})
