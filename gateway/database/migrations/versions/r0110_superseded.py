"""When an operator acknowledged a superseded line, and an index of these lines by their requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0110"
down_revision = "0100"


def upgrade() -> None:
    """Add the column and the index."""
    op.add_column("superseded_lines", sa.Column("acknowledged_at", sa.BigInteger))
    op.create_index("superseded_lines_request", "superseded_lines", ["account", "request_id"])
