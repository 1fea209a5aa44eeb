"""The newest audit events of the database, and of the store's events that the importer has not moved yet."""

from __future__ import annotations

from gateway.admin.actor import Actor
from gateway.admin.audit_event import AuditEvent
from gateway.admin.audit_trail import AuditFilter, AuditTrail, require_reader
from gateway.admin.outbox import AuditOutbox


async def newest_events(
    actor: Actor, trail: AuditTrail, outbox: AuditOutbox, wanted: AuditFilter, *, limit: int
) -> list[AuditEvent]:
    """The newest events that match, newest first, at most `limit`, which is at most `READ_AT_MOST`; Forbidden."""
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
