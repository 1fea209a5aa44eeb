"""Which connections a provider has verified, and by which provider the makers of links and invitations were signed in.

Of a user whom a provider has proved, the connections that were there then are verified: others ended.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0131"
down_revision = "0130"

USERS = sa.table("users", *map(sa.column, ("id", "proved_at", "proved_by")))
IDENTITIES = sa.table("identities", *map(sa.column, ("user_id", "created_at", "verified_at")))
TOGETHER = 10_000_000  # microseconds: a new user is proved, and then connected


def upgrade() -> None:
    """Add the columns, and mark what is verified."""
    op.add_column("identities", sa.Column("verified_at", sa.BigInteger))
    for table in ("invitations", "sign_in_links"):
        op.add_column(table, sa.Column("maker_issuer", sa.Text, nullable=False, server_default=""))
    users, connected = USERS.c, IDENTITIES.c
    proved = sa.and_(users.id == connected.user_id, users.proved_by == "provider")
    known = sa.exists().where(proved, connected.created_at <= users.proved_at + TOGETHER)
    op.execute(IDENTITIES.update().where(known).values(verified_at=connected.created_at))
