"""The e-mail of the user in each membership, and an index by which a page of the members of an account is found."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0142"
down_revision = "0141"

FILL = "UPDATE memberships SET email = (SELECT users.email FROM users WHERE users.id = memberships.user_id)"
BOTH = ["user_id", "email"]


def upgrade() -> None:
    """Add the column, which follows that of `users`; SQLite copies the table."""
    op.create_index("users_id_email", "users", ["id", "email"], unique=True)
    op.add_column("memberships", sa.Column("email", sa.Text, nullable=False, server_default=""))
    op.execute(FILL)
    op.drop_index("memberships_account", "memberships")
    with op.batch_alter_table("memberships") as table:
        table.alter_column("email", server_default=None)
        table.create_foreign_key(
            "memberships_email", "users", BOTH, ["id", "email"], onupdate="CASCADE", ondelete="CASCADE"
        )
    op.create_index("memberships_account", "memberships", ["account", "email"])
