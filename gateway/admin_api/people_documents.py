"""Schemas of answers about people and their access: users, members, sessions, connections, invitations and tokens."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from gateway.admin_api.documents import Time


class User(Struct):
    """A person."""

    id: str
    email: str
    name: str
    role: Annotated[str, Meta(description="On the site.", extra_json_schema={"enum": ["operator", "viewer", "none"]})]
    state: Annotated[str, Meta(extra_json_schema={"enum": ["active", "disabled"]})]
    proved: Annotated[
        str,
        Meta(
            description="By what the e-mail address is proved; while it is not, no role is added by the address alone.",
            extra_json_schema={"enum": ["mail", "provider", "operator", "no"]},
        ),
    ]
    has_password: bool
    has_second_factor: bool
    accounts: Annotated[dict[str, str], Meta(description="Roles by account.")]
    created: Time
    disabled: Time | None


class UserWithLink(User):
    """A user with a new link, with which they sign in once; it is shown only here."""

    link: str


class Erased(Struct):
    """A user who was erased."""

    id: str
    state: str


class Member(Struct):
    """A user as a member of one account."""

    id: str
    email: str
    name: str
    role: Annotated[str, Meta(extra_json_schema={"enum": ["owner", "member", "none"]})]
    state: str


class Session(Struct):
    """Where a user is signed in."""

    id: str
    user_id: str
    created: Time
    last_seen: Time
    expires: Time
    address: str
    user_agent: str


class EndedSessions(Struct):
    """How many sessions were ended."""

    ended: int


class Identity(Struct):
    """A connection of a user with an identity provider; `used` is the time of the last sign-in."""

    issuer: str
    created: Time
    used: Time | None


class EndedIdentities(Struct):
    """How many connections were ended."""

    ended: int


class Invitation(Struct):
    """An invitation without its link. `account` is "" for one to the site."""

    id: str
    email: str
    account: str
    role: str
    site_role: str
    created_by: str
    created: Time
    expires: Time
    used: Time | None


class NewInvitation(Invitation):
    """A new invitation. `link` is null if it was sent by e-mail; otherwise it is shown only here."""

    sent: bool
    link: str | None


class Withdrawn(Struct):
    """An invitation that was withdrawn."""

    id: str
    state: str


class Token(Struct):
    """An admin token without its text."""

    id: str
    name: str
    last4: str
    state: Annotated[str, Meta(extra_json_schema={"enum": ["active", "expired", "revoked"]})]
    scopes: list[str]
    account: str | None
    created_by: str
    created: Time
    expires: Time | None
    last_used: Time | None


class NewToken(Struct):
    """A new admin token; `token`, its text, is shown only here."""

    token: str
    id: str
    name: str
    scopes: list[str]
    account: str | None
    expires: Time | None


class TokenInfo(Struct):
    """The token of this request, and the server's version."""

    id: str
    scopes: list[str]
    account: str | None
    version: str
