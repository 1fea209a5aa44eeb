"""Changes of keys and accounts that an older store lacks: the audit names them until an operator acknowledges them.

They are in events of the audit trail with the action `store.older`; a later one with `store.acknowledge` closes them.
"""

from __future__ import annotations

from typing import Any

import msgspec
import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.database.engine import Database
from gateway.database.people_tables import audit_events
from gateway.ledger.auditing.report import AuditReport, LostChange

OLDER, ACKNOWLEDGE = "store.older", "store.acknowledge"
PLACE = "store:changes"  # the object of both events
NAMED = 100  # changes that an event names, and an audit
EVENTS = 100  # that are read, the newest


def open_changes(connection: Connection) -> tuple[int, list[LostChange]]:
    """The number of changes that nobody has acknowledged, and the newest of them."""
    columns = audit_events.c
    query = sa.select(columns.action, columns.after).where(columns.object == PLACE)
    count, named = 0, list[LostChange]()
    for action, after in connection.execute(query.order_by(columns.at.desc(), columns.id.desc()).limit(EVENTS)):
        if action != OLDER:
            break
        found: dict[str, Any] = msgspec.json.decode(after)
        count += found["changes"]
        named += msgspec.convert(found["named"], list[LostChange])[: NAMED - len(named)]
    return count, named


def audit_lost_changes(database: Database) -> AuditReport:
    """The report on lost changes. It blocks; DatabaseUnavailable."""
    with database.reading() as connection:
        count, named = open_changes(connection)
    return AuditReport(lost_changes=count, changes=named)
