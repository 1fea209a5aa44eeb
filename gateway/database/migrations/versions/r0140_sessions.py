"""The sessions of calls, and an index by which the calls of one are found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0140"
down_revision = "0135"

IN_SESSION = sa.text("session != ''")


def upgrade() -> None:
    """Add the column and the index; calls of before have no session."""
    op.add_column("ledger_lines", sa.Column("session", sa.Text, nullable=False, server_default=""))
    op.create_index(
        "ledger_lines_session",
        "ledger_lines",
        ["session", "account", "seq"],
        sqlite_where=IN_SESSION,
        postgresql_where=IN_SESSION,
    )
