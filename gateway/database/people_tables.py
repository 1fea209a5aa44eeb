"""The tables of people: users, what they belong to, how they sign in, admin tokens, and the audit trail.

Times are microseconds since 1970 in UTC. Tokens are stored as hashes of 32 bytes: SHA-256 for sessions, links and
invitations, HMAC with a key derived from the pepper for admin tokens. Deleting a user deletes everything that names the
person; the audit trail has only the user's id.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from gateway.database.tables import Hash, Time
from gateway.database.tables import metadata as metadata


def _text(name: str, *rest: Any) -> sa.Column[str]:
    return sa.Column(name, sa.Text, *rest, nullable=False)


def _time(name: str) -> sa.Column[int]:
    return sa.Column(name, Time, nullable=False)


def _time_or_none(name: str) -> sa.Column[int]:
    return sa.Column(name, Time)


def _user() -> sa.Column[str]:
    return _text("user_id", sa.ForeignKey("users.id", ondelete="CASCADE"))


#: A person. `email` is normalised; `role` is operator, viewer or none; `totp_step` is the last step used for a code.
#: `proved_by` is mail, provider or operator, or empty while the address is not proved, see `people.proofs`.
#: `address_set_by`: who changed `email` last without being an operator then, or empty.
users = sa.Table(
    "users",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _text("email"),
    _text("name"),
    _text("role"),
    sa.Column("password_hash", sa.Text),
    _time_or_none("password_set_at"),
    sa.Column("totp_secret", sa.Text),
    sa.Column("totp_step", sa.BigInteger),
    _time("created_at"),
    _time_or_none("disabled_at"),
    _time_or_none("proved_at"),
    sa.Column("proved_by", sa.Text, nullable=False, server_default=""),
    sa.Column("address_set_by", sa.Text, nullable=False, server_default=""),
    sa.UniqueConstraint("email", name="users_email"),
    sa.Index("users_role", "role", "id"),
    sa.Index("users_id_email", "id", "email", unique=True),  # `memberships` refers to both
)

#: A user of an OIDC provider. `granted` is a JSON object: what the provider's claims gave, see `people.grants`.
#: `verified_at`: when the provider first called the address of the user verified, or none.
identities = sa.Table(
    "identities",
    metadata,
    _text("issuer"),
    _text("subject"),
    _user(),
    _time("created_at"),
    _time_or_none("used_at"),
    sa.Column("granted", sa.Text, nullable=False, server_default="{}"),
    _time_or_none("verified_at"),
    sa.PrimaryKeyConstraint("issuer", "subject"),
    sa.Index("identities_user", "user_id"),
    sa.Index("identities_user_issuer", "user_id", "issuer", unique=True),
)

#: `role` is owner or member. `email` is that of the user and follows it: members are read in its order.
#: `given_by`: who gave it, see `people.role_rights.GivenBy`; empty in older rows.
memberships = sa.Table(
    "memberships",
    metadata,
    _user(),
    _text("account"),
    _text("role"),
    _time("created_at"),
    sa.Column("given_by", sa.Text, nullable=False, server_default=""),
    _text("email"),
    sa.PrimaryKeyConstraint("user_id", "account"),
    sa.ForeignKeyConstraint(
        ["user_id", "email"],
        ["users.id", "users.email"],
        name="memberships_email",
        onupdate="CASCADE",
        ondelete="CASCADE",
    ),
    sa.Index("memberships_account", "account", "email"),
)

#: To an account with a role there, or to the site with `site_role`; the other columns of the two are empty.
#: `mailed_at`: the link was sent to the address and shown to nobody. `maker_issuer`: the identity provider by which the
#: user was signed in who made it, or empty. `former_user`: the id of a user who had the address and has another one
#: now, or empty.
invitations = sa.Table(
    "invitations",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("token_hash", Hash, nullable=False),
    _text("email"),
    _text("account"),
    _text("role"),
    _text("site_role"),
    _text("created_by"),
    _time("created_at"),
    _time("expires_at"),
    _time_or_none("used_at"),
    _time_or_none("mailed_at"),
    sa.Column("maker_issuer", sa.Text, nullable=False, server_default=""),
    sa.Column("former_user", sa.Text, nullable=False, server_default=""),
    sa.UniqueConstraint("token_hash", name="invitations_token"),
    sa.Index("invitations_email", "email"),
    sa.Index("invitations_account", "account"),
)

#: Links that work once. `purpose` is sign_in, reset (a new password) or second_factor (after the password or a
#: provider). `arrival` is a JSON object for a second step after a provider, see `admin.oidc.arrivals`, or empty.
#: `created_by` is the actor who made a link of the purpose sign_in, `maker_issuer` as of an invitation.
sign_in_links = sa.Table(
    "sign_in_links",
    metadata,
    sa.Column("token_hash", Hash, primary_key=True),
    _user(),
    _text("purpose"),
    _time("created_at"),
    _time("expires_at"),
    _time_or_none("used_at"),
    sa.Column("arrival", sa.Text, nullable=False, server_default=""),
    sa.Column("created_by", sa.Text, nullable=False, server_default=""),
    sa.Column("maker_issuer", sa.Text, nullable=False, server_default=""),
    sa.Index("sign_in_links_user", "user_id"),
)

#: People who asked to sign up by e-mail and have not opened the link yet. `network`: from where they asked.
sign_ups = sa.Table(
    "sign_ups",
    metadata,
    sa.Column("token_hash", Hash, primary_key=True),
    _text("email"),
    _time("created_at"),
    _time("expires_at"),
    sa.Column("network", sa.Text, nullable=False, server_default=""),
    sa.Index("sign_ups_address", "email"),
    sa.Index("sign_ups_expires", "expires_at"),
    sa.Index("sign_ups_network", "network", "expires_at"),
)

#: Accounts that new users own and that the store may not have yet; a row is removed once its account is open.
#: `rule` is that of the audit trail.
promised_accounts = sa.Table(
    "promised_accounts",
    metadata,
    sa.Column("user_id", sa.Text, sa.ForeignKey("users.id", ondelete="CASCADE"), primary_key=True),
    _text("account"),
    _text("rule"),
    _time("created_at"),
)

#: Who is signed in. A session that ended has no row. `issuer`: the identity provider of the sign-in, or empty.
sessions = sa.Table(
    "sessions",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("token_hash", Hash, nullable=False),
    _user(),
    _time("created_at"),
    _time("last_seen_at"),
    _time("expires_at"),
    _text("address"),
    _text("user_agent"),
    sa.Column("issuer", sa.Text, nullable=False, server_default=""),
    sa.UniqueConstraint("token_hash", name="sessions_token"),
    sa.Index("sessions_user", "user_id"),
    sa.Index("sessions_expires", "expires_at"),
)

#: Tokens of programs. `scopes` has spaces between them; `account` is empty for all accounts.
admin_tokens = sa.Table(
    "admin_tokens",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("token_hash", Hash, nullable=False),
    _text("last4"),
    _text("name"),
    _text("scopes"),
    _text("account"),
    _text("created_by"),
    _time("created_at"),
    _time_or_none("expires_at"),
    _time_or_none("last_used_at"),
    _time_or_none("revoked_at"),
    sa.UniqueConstraint("token_hash", name="admin_tokens_token"),
)

#: Who changed what: rows are added, never changed; erasing a person only empties the addresses of their events.
#: `object` is `KIND:ID`, `account` the account that it belongs to or empty, `before` and `after` are JSON objects.
audit_events = sa.Table(
    "audit_events",
    metadata,
    sa.Column("id", sa.Text, primary_key=True),
    _time("at"),
    _text("actor_kind"),
    _text("actor_id"),
    _text("action"),
    _text("object"),
    _text("account"),
    _text("before"),
    _text("after"),
    _text("address"),
    sa.Index("audit_events_at", "at", "id"),
    sa.Index("audit_events_actor", "actor_id", "at"),
    sa.Index("audit_events_object", "object", "at"),
    sa.Index("audit_events_account", "account", "at"),
)

#: All of them, each after those that it refers to.
PEOPLE = (
    users, identities, memberships, invitations, sign_in_links, sign_ups, promised_accounts, sessions, admin_tokens,
    audit_events,
)  # fmt: skip
