"""Who gave each membership. For older memberships it is not known, so they count as given by an operator."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0133"
down_revision = "0132"


def upgrade() -> None:
    """Add the column."""
    op.add_column("memberships", sa.Column("given_by", sa.Text, nullable=False, server_default=""))
