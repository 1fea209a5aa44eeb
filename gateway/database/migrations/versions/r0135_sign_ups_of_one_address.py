"""Several links to sign up for one e-mail address: one that a stranger asks for does not end that of the holder."""

from __future__ import annotations

from alembic import op

revision = "0135"
down_revision = "0134"


def upgrade() -> None:
    """Replace the unique constraint by an index; SQLite copies the table."""
    with op.batch_alter_table("sign_ups") as table:
        table.drop_constraint("sign_ups_email", type_="unique")
    op.create_index("sign_ups_address", "sign_ups", ["email"])
