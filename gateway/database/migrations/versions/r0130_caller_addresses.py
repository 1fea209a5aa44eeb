"""Addresses of callers, by call, and by key and day."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0130"
down_revision = "0120"


def upgrade() -> None:
    """Make the tables."""
    _create("call_addresses", _time("at"), sa.Column("calls", sa.Text, nullable=False), place="at")
    address = sa.Column("address", sa.Text, nullable=False)
    _create("key_addresses", address, _time("first_at"), _time("last_at"), place="address")


def _create(name: str, *columns: sa.Column[int] | sa.Column[str], place: str) -> None:
    op.create_table(
        name,
        _time("day"),
        sa.Column("key_id", sa.Text, nullable=False),
        *columns,
        sa.PrimaryKeyConstraint("day", "key_id", place),
        sqlite_with_rowid=False,
    )


def _time(name: str) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=False)
