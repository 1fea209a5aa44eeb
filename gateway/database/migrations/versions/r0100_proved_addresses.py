"""Which addresses are proved, which invitations went out by e-mail alone, and who made a link.

Users of before are proved if they signed up by e-mail, or came from an identity provider that called their address
verified, and the address was not changed since. The audit trail says so.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0100"
down_revision = "0090"

USERS = sa.table("users", *map(sa.column, ("id", "created_at", "proved_at", "proved_by")))
EVENTS = sa.table("audit_events", *map(sa.column, ("action", "object", "actor_kind", "actor_id", "after")))


def upgrade() -> None:
    """Add the columns, and mark who is proved."""
    op.add_column("users", sa.Column("proved_at", sa.BigInteger))
    op.add_column("users", sa.Column("proved_by", sa.Text, nullable=False, server_default=""))
    op.add_column("invitations", sa.Column("mailed_at", sa.BigInteger))
    op.add_column("sign_in_links", sa.Column("created_by", sa.Text, nullable=False, server_default=""))
    events = EVENTS.c
    _mark("mail", events.actor_id == "sign-up")
    _mark("provider", events.actor_id.startswith("oidc."))


def _mark(proof: str, by: sa.ColumnElement[bool]) -> None:
    events, of_user = EVENTS.c, EVENTS.c.object == sa.literal("user:").concat(USERS.c.id)
    came = sa.exists().where(events.action == "users.create", of_user, events.actor_kind == "system", by)
    changed = sa.exists().where(events.action == "users.edit", of_user, events.after.contains('"email"'))
    values = {"proved_at": USERS.c.created_at, "proved_by": proof}
    op.execute(USERS.update().where(came, ~changed).values(values))
