"""What a second step completes after an identity provider: the connection, once the code was right.

While the code is asked for, it is kept with the link of the second step. Nothing is connected before.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import by_configuration
from gateway.admin.identities import TAKEN, has_identity, insert_identity, note_use, user_of_identity
from gateway.admin.oidc.grants import Granted, apply_grants
from gateway.admin.user_rows import User, lock_user
from gateway.errors import SignInRefused

CONNECTED = "You are connected with this sign-in service already"


class Arrival(Struct, frozen=True, omit_defaults=True):
    """A person who has come from a provider, without personal data but the subject."""

    provider: str
    issuer: str
    subject: str = ""  # of a person who is to be connected; empty if the user is connected already
    granted: Granted = Granted()

    def __repr__(self) -> str:
        return f"Arrival(provider={self.provider!r})"

    def text(self) -> str:
        """Its form beside the link."""
        return msgspec.json.encode(self).decode()


def connect(connection: Connection, user: User, issuer: str, subject: str, address: str) -> None:
    """Connect a user; SignInRefused if they, or the person, are connected already."""
    if has_identity(connection, user.id, issuer):
        raise SignInRefused(CONNECTED, detail="other_identity")
    insert_identity(connection, user.actor(address), user.id, issuer, subject)


def complete(connection: Connection, user: User, text: str, address: str) -> str:
    """Connect the user whose code was right, and apply what the claims gave; returns the issuer, or "" without a text.

    SignInRefused if the person or the user was connected with somebody else meanwhile.
    """
    if not text:
        return ""
    arrival = msgspec.json.decode(text, type=Arrival)
    if not arrival.subject:
        return arrival.issuer
    user = lock_user(connection, user.id)
    known = user_of_identity(connection, arrival.issuer, arrival.subject)
    if known is None:
        connect(connection, user, arrival.issuer, arrival.subject, address)
    elif known[0].id != user.id:
        raise SignInRefused(TAKEN, detail="other_user")
    before = known[1] if known is not None else Granted()
    actor = by_configuration(f"oidc.{arrival.provider}", address)
    applied = apply_grants(connection, actor, user, before, arrival.granted)
    # A membership that the claims do not give any more stays remembered, and ends at the next sign-in.
    note_use(connection, arrival.issuer, arrival.subject, applied.remembered)
    return arrival.issuer
