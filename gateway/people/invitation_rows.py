"""The rows of invitations, and those that are open for an address."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.admin.times import from_micros, from_micros_or_none, now, time_text
from gateway.admin.user_rows import Roles, User, user_of
from gateway.database.people_tables import invitations, sign_ups, users
from gateway.errors import InvalidLink
from gateway.people.entry_rights import maker_may_give
from gateway.people.makers import is_operator


class Invitation(Struct, frozen=True):
    """An invitation without its token."""

    id: str
    email: str
    account: str  # "" for the site
    role: str  # in the account; "" for the site
    site_role: str
    created_by: str
    maker_issuer: str  # the identity provider of the session of a user who made it, or ""
    created: datetime
    expires: datetime
    used: datetime | None
    is_mailed: bool  # the link was sent to the address, and shown to nobody

    def json_form(self) -> dict[str, Any]:
        """The JSON document of an invitation."""
        form = structs.asdict(self)
        del form["is_mailed"], form["maker_issuer"]
        return form | {name: time_text(form[name]) for name in ("created", "expires", "used")}


def invitations_of(connection: Connection, email: str) -> list[Invitation]:
    """All invitations of an e-mail that are stored."""
    query = sa.select(invitations).where(invitations.c.email == email).order_by(invitations.c.created_at)
    return [invitation_of(row) for row in connection.execute(query)]


def forget_address(connection: Connection, user_id: str, email: str) -> None:
    """Remove what was made for an e-mail that is not that of its user any more.

    Open invitations stay, so that their makers do not learn who is a user, and are removed when the user is erased.
    """
    table = invitations.c
    connection.execute(invitations.delete().where(table.email == email, table.used_at.is_not(None)))
    connection.execute(invitations.update().where(table.email == email).values(former_user=user_id))
    connection.execute(sign_ups.delete().where(sign_ups.c.email == email))


def is_valid(hashed_token: bytes) -> sa.ColumnElement[bool]:
    """Whether a row is the invitation of this token, and open."""
    table = invitations.c
    return sa.and_(table.token_hash == hashed_token, table.used_at.is_(None), table.expires_at > now())


def find_invitation(connection: Connection, hashed_token: bytes) -> Invitation:
    """The valid invitation of a token, which stays valid; InvalidLink, also if its maker may not give its role now."""
    row = connection.execute(sa.select(invitations).where(is_valid(hashed_token))).one_or_none()
    if row is None:
        raise InvalidLink
    invitation = invitation_of(row)
    if not _is_still_given(connection, invitation, user_of(connection, users.c.email == invitation.email)):
        raise InvalidLink
    return invitation


def accounts_invited_to(connection: Connection, email: str) -> list[Invitation]:
    """The open invitations of an e-mail that give no role on the site, oldest first."""
    table = invitations.c
    open_ = sa.and_(table.email == email, table.used_at.is_(None), table.expires_at > now())
    query = sa.select(invitations).where(open_, table.site_role.in_(("", "none"))).order_by(table.created_at)
    found = [invitation_of(row) for row in connection.execute(query)]
    user = user_of(connection, users.c.email == email, Roles({one.account for one in found}))
    return [one for one in found if _is_still_given(connection, one, user)]


def counting_without_acceptance(connection: Connection, email: str) -> list[Invitation]:
    """Those of `accounts_invited_to` that a new person need not accept: of operators, who add people without asking."""
    found = accounts_invited_to(connection, email)
    return [one for one in found if is_operator(connection, one.created_by, one.maker_issuer)]


def _is_still_given(connection: Connection, one: Invitation, user: User | None) -> bool:
    roles = {"account": one.account, "role": one.role, "site_role": one.site_role}
    return maker_may_give(connection, one.created_by, one.maker_issuer, user, **roles)


def invitation_of(row: sa.Row[Any]) -> Invitation:
    """The invitation of a row."""
    return Invitation(
        row.id,
        row.email,
        row.account,
        row.role,
        row.site_role,
        row.created_by,
        row.maker_issuer,
        from_micros(row.created_at),
        from_micros(row.expires_at),
        from_micros_or_none(row.used_at),
        row.mailed_at is not None,
    )
