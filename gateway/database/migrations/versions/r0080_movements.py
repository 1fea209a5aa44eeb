"""An index of the few lines that are no charges: statements list them, and an account may have millions of charges."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0080"
down_revision = "0070"

IS_MOVEMENT = sa.text("kind != 'use' AND kind != 'reclaim'")


def upgrade() -> None:
    """Make the index."""
    op.create_index(
        "ledger_lines_movements",
        "ledger_lines",
        ["account", "seq"],
        sqlite_where=IS_MOVEMENT,
        postgresql_where=IS_MOVEMENT,
    )
