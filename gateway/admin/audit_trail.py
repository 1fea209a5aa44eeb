"""The audit trail in the database: events are added in the transaction of the change, and read by time."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_event import AuditEvent, new_event
from gateway.admin.outbox import AuditOutbox
from gateway.admin.pages import READ_AT_MOST
from gateway.admin.rights import reads_account
from gateway.admin.times import to_micros
from gateway.admin.transactions import Transactions
from gateway.database.people_tables import audit_events, users
from gateway.errors import Forbidden


class AuditFilter(msgspec.Struct, frozen=True, kw_only=True):
    """The events to find; an empty field matches every event."""

    since: datetime | None = None
    actor: str = ""  # `KIND:ID`, a kind, an id, or a user's e-mail
    object: str = ""  # `KIND:ID`, or a kind
    account: str = ""
    before: str = ""  # only events older than the one with this id

    def matches(self, event: AuditEvent) -> bool:
        """Whether an event matches; `actor` must not be an e-mail here."""
        return (
            (self.since is None or event.at >= to_micros(self.since))
            and self.actor in ("", event.actor_kind, event.actor_id, f"{event.actor_kind}:{event.actor_id}")
            and self.object in ("", event.object, event.object.partition(":")[0])
            and self.account in ("", event.account)
            and (not self.before or event.id < self.before)
        )


class AuditTrail:
    """Reads the events."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def list(self, actor: Actor, wanted: AuditFilter, *, limit: int = 100) -> list[AuditEvent]:
        """The newest events, newest first, at most `READ_AT_MOST`. An owner sees the events of the account."""
        require_reader(actor, wanted.account)
        return await self._transactions.read(newest, wanted, min(limit, READ_AT_MOST))

    async def resolved(self, wanted: AuditFilter) -> AuditFilter:
        """The filter with the user's id instead of an e-mail."""
        if "@" not in wanted.actor:
            return wanted
        query = sa.select(users.c.id).where(users.c.email == wanted.actor.strip().lower())
        found = await self._transactions.read(lambda connection: connection.scalar(query))
        return msgspec.structs.replace(wanted, actor=found or wanted.actor)


def require_reader(actor: Actor, account: str) -> None:
    """Forbidden for an actor who may not read these events."""
    if not reads_account(actor, account):
        raise Forbidden("This needs the scope 'read', or an owner of the account")


def record(connection: Connection, actor: Actor, action: str, object_: str, **sides: Any) -> None:
    """Add an event in this transaction; `sides`: account, before, after."""
    connection.execute(audit_events.insert().values(new_event(actor, action, object_, **sides).row()))


def newest(connection: Connection, wanted: AuditFilter, limit: int) -> list[AuditEvent]:
    """The newest events that match, newest first."""
    query = sa.select(audit_events).order_by(audit_events.c.at.desc(), audit_events.c.id.desc()).limit(limit)
    found = connection.execute(query.where(*_conditions(wanted)))
    return [event_of(row) for row in found]


def event_of(row: sa.Row[Any]) -> AuditEvent:
    """The event of a row; a side that cannot be read is `{"unreadable": true}`."""
    values = dict(row._mapping)
    return AuditEvent(**values | {side: _side(values[side]) for side in ("before", "after")})


def _side(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except (ValueError, RecursionError):
        return {"unreadable": True}


def _conditions(wanted: AuditFilter) -> Sequence[sa.ColumnElement[bool]]:
    table, found = audit_events.c, list[sa.ColumnElement[bool]]()
    if wanted.since is not None:
        found.append(table.at >= to_micros(wanted.since))
    if wanted.actor:
        kind, colon, id_ = wanted.actor.partition(":")
        named = sa.or_(table.actor_id == wanted.actor, table.actor_kind == wanted.actor)
        found.append(sa.and_(table.actor_kind == kind, table.actor_id == id_) if colon else named)
    if wanted.object:
        is_kind = ":" not in wanted.object
        found.append(
            table.object.startswith(f"{wanted.object}:", autoescape=True) if is_kind else table.object == wanted.object
        )
    if wanted.account:
        found.append(table.account == wanted.account)
    if wanted.before:
        found.append(table.id < wanted.before)
    return found


async def newest_events(
    actor: Actor, trail: AuditTrail, outbox: AuditOutbox, wanted: AuditFilter, *, limit: int
) -> list[AuditEvent]:
    """The newest events that match, newest first, of the database and of those that still wait in the store.

    At most `limit`, which is at most `READ_AT_MOST`; Forbidden.
    """
    require_reader(actor, wanted.account)
    wanted = await trail.resolved(wanted)
    found = {event.id: event for event in await _waiting(outbox) if wanted.matches(event)}
    found |= {event.id: event for event in await trail.list(actor, wanted, limit=limit)}
    return sorted(found.values(), key=lambda event: (event.at, event.id), reverse=True)[:limit]


async def _waiting(outbox: AuditOutbox) -> list[AuditEvent]:
    """The events that are still in the store; read before those of the database, so that none is missed."""
    found: list[AuditEvent] = []
    after = ""
    while page := await outbox.read(after):
        found += [event for _, event in page if event is not None]
        after = page[-1][0]
    return found
