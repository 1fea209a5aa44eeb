"""Indexes of the days on which a key or a user has calls."""

from __future__ import annotations

from alembic import op

revision = "0060"
down_revision = "0050"


def upgrade() -> None:
    """Make the indexes."""
    for column in ("key", "user"):
        op.create_index(f"usage_daily_{column}", "usage_daily", [f"{column}_id", "account", "day"])
