"""People, admin tokens and the audit trail."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def _text(*names: str) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.Text, nullable=False) for name in names]


def _times(*names: str, optional: bool = False) -> list[sa.Column[Any]]:
    return [sa.Column(name, sa.BigInteger, nullable=optional) for name in names]


def _key(name: str = "id") -> sa.Column[Any]:
    return sa.Column(name, sa.Text, primary_key=True)


def _hash() -> sa.Column[Any]:
    return sa.Column("token_hash", sa.LargeBinary, nullable=False)


def _user() -> sa.Column[Any]:
    return sa.Column("user_id", sa.Text, sa.ForeignKey("users.id", ondelete="CASCADE"), nullable=False)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "users",
        _key(),
        *_text("email", "name", "role"),
        sa.Column("password_hash", sa.Text),
        *_times("password_set_at", optional=True),
        sa.Column("totp_secret", sa.Text),
        *_times("totp_step", optional=True),
        *_times("created_at"),
        *_times("disabled_at", optional=True),
        sa.UniqueConstraint("email", name="users_email"),
    )
    op.create_table(
        "identities",
        *_text("issuer", "subject"),
        _user(),
        *_times("created_at"),
        sa.PrimaryKeyConstraint("issuer", "subject"),
    )
    op.create_index("identities_user", "identities", ["user_id"])
    op.create_table(
        "memberships",
        _user(),
        *_text("account", "role"),
        *_times("created_at"),
        sa.PrimaryKeyConstraint("user_id", "account"),
    )
    op.create_index("memberships_account", "memberships", ["account"])
    op.create_table(
        "invitations",
        _key(),
        _hash(),
        *_text("email", "account", "role", "site_role", "created_by"),
        *_times("created_at", "expires_at"),
        *_times("used_at", optional=True),
        sa.UniqueConstraint("token_hash", name="invitations_token"),
    )
    op.create_index("invitations_email", "invitations", ["email"])
    op.create_index("invitations_account", "invitations", ["account"])
    _sign_in_tables()
    _token_and_audit_tables()


def _sign_in_tables() -> None:
    op.create_table(
        "sign_in_links",
        sa.Column("token_hash", sa.LargeBinary, primary_key=True),
        _user(),
        *_text("purpose"),
        *_times("created_at", "expires_at"),
        *_times("used_at", optional=True),
    )
    op.create_index("sign_in_links_user", "sign_in_links", ["user_id"])
    op.create_table(
        "sessions",
        _key(),
        _hash(),
        _user(),
        *_times("created_at", "last_seen_at", "expires_at"),
        *_text("address", "user_agent"),
        sa.UniqueConstraint("token_hash", name="sessions_token"),
    )
    op.create_index("sessions_user", "sessions", ["user_id"])
    op.create_index("sessions_expires", "sessions", ["expires_at"])


def _token_and_audit_tables() -> None:
    op.create_table(
        "admin_tokens",
        _key(),
        _hash(),
        *_text("last4", "name", "scopes", "account", "created_by"),
        *_times("created_at"),
        *_times("expires_at", "last_used_at", "revoked_at", optional=True),
        sa.UniqueConstraint("token_hash", name="admin_tokens_token"),
    )
    op.create_table(
        "audit_events",
        _key(),
        *_times("at"),
        *_text("actor_kind", "actor_id", "action", "object", "account", "before", "after", "address"),
    )
    op.create_index("audit_events_at", "audit_events", ["at", "id"])
    op.create_index("audit_events_actor", "audit_events", ["actor_id", "at"])
    op.create_index("audit_events_object", "audit_events", ["object", "at"])
    op.create_index("audit_events_account", "audit_events", ["account", "at"])
