"""The accounts that sign-ups have promised to new users, until the store has them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0090"
down_revision = "0080"


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "promised_accounts",
        sa.Column("user_id", sa.Text, sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("account", sa.Text, nullable=False),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
