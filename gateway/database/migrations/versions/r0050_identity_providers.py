"""What identity providers granted, and people who ask to sign up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0050"
down_revision = "0040"


def upgrade() -> None:
    """Add the columns, and make the table."""
    op.add_column("identities", sa.Column("used_at", sa.BigInteger))
    op.add_column("identities", sa.Column("granted", sa.Text, nullable=False, server_default="{}"))
    op.create_index("identities_user_issuer", "identities", ["user_id", "issuer"], unique=True)
    op.create_table(
        "sign_ups",
        sa.Column("token_hash", sa.LargeBinary, primary_key=True),
        sa.Column("email", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.UniqueConstraint("email", name="sign_ups_email"),
    )
    op.create_index("sign_ups_expires", "sign_ups", ["expires_at"])
