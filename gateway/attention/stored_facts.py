"""What of the database needs an operator: admin tokens that end soon, and lost lines that nobody has decided about."""

from __future__ import annotations

import time
from datetime import timedelta

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.attention.finding import ExpiringToken
from gateway.database.people_tables import admin_tokens
from gateway.database.tables import superseded_lines

ENDS_WITHIN = timedelta(days=7)
MICRO = 1_000_000
MOST_TOKENS = 20
MOST_LINES = 1000  # that are counted


class StoredFacts(Struct, frozen=True):
    """What was found."""

    tokens: list[ExpiringToken] = []
    superseded: int = 0


def read_facts(connection: Connection) -> StoredFacts:
    """Read them now."""
    now = int(time.time() * MICRO)
    column, lost = admin_tokens.c, superseded_lines.c
    soon = sa.and_(column.expires_at > now, column.expires_at <= now + ENDS_WITHIN // timedelta(microseconds=1))
    query = sa.select(column.name, column.expires_at).where(column.revoked_at.is_(None), soon)
    tokens = connection.execute(query.order_by(column.expires_at).limit(MOST_TOKENS))
    open_ones = sa.select(lost.id).where(lost.acknowledged_at.is_(None)).limit(MOST_LINES)
    return StoredFacts(
        [ExpiringToken(row.name, row.expires_at / MICRO) for row in tokens],
        int(connection.scalar(sa.select(sa.func.count()).select_from(open_ones.subquery())) or 0),
    )
