"""An index by which the operators are found among many users."""

from __future__ import annotations

from alembic import op

revision = "0141"
down_revision = "0140"


def upgrade() -> None:
    """Add the index."""
    op.create_index("users_role", "users", ["role", "id"])
