"""The identity provider of a session, what a second step completes, and the network of a person who signs up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0070"
down_revision = "0060"


def upgrade() -> None:
    """Add the columns and the index."""
    for table, column in (("sessions", "issuer"), ("sign_in_links", "arrival"), ("sign_ups", "network")):
        op.add_column(table, sa.Column(column, sa.Text, nullable=False, server_default=""))
    op.create_index("sign_ups_network", "sign_ups", ["network", "expires_at"])
