"""Which open invitations are for an address that a user had before: they are removed when the user is erased."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0132"
down_revision = "0131"


def upgrade() -> None:
    """Add the column."""
    op.add_column("invitations", sa.Column("former_user", sa.Text, nullable=False, server_default=""))
