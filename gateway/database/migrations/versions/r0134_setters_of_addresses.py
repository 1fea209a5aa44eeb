"""Who last changed the address of each user without being an operator. For older changes it is not known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0134"
down_revision = "0133"


def upgrade() -> None:
    """Add the column."""
    op.add_column("users", sa.Column("address_set_by", sa.Text, nullable=False, server_default=""))
