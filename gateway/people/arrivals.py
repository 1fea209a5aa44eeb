"""What a second step completes after an identity provider, once the code was right: nothing changes before.

While the code is asked for, it is kept with the link of the second step.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import by_configuration
from gateway.admin.granted import Granted
from gateway.admin.user_rows import User, lock_user
from gateway.errors import SignInRefused
from gateway.people.grants import apply_grants
from gateway.people.identities import (
    TAKEN,
    has_identity,
    insert_identity,
    note_use,
    unverified_identities,
    used_at,
    user_of_identity,
)
from gateway.people.take_over import prove_by_provider

CONNECTED = "You are connected with this sign-in service already"


class Arrival(Struct, frozen=True, omit_defaults=True):
    """A person who has come from a provider, without personal data but the subject.

    `connects`: the person was found by a verified address, and is to be connected. `address`: a hash of the address
    that the provider calls verified, or "".
    """

    provider: str
    issuer: str
    subject: str = ""
    granted: Granted = Granted()
    connects: bool = False
    address: str = ""
    at: int = 0  # when the person came, in microseconds since 1970

    def __repr__(self) -> str:
        return f"Arrival(provider={self.provider!r})"

    def text(self) -> str:
        """Its form beside the link."""
        return msgspec.json.encode(self).decode()

    def is_of(self, user: User) -> bool:
        """Whether the provider calls the address of the user that of the person."""
        return bool(self.address) and self.address == address_hash(user.id, user.email)


class Completed(Struct, frozen=True):
    """What the right code completed: the issuer, and the accounts that the user has to leave."""

    issuer: str = ""
    provider: str = ""
    left: list[str] = []


def address_hash(user_id: str, email: str) -> str:
    """What is stored of a verified address, to compare it with that of the user later."""
    return sha256(f"{user_id} {email}".encode()).hexdigest()


def arrival_of_text(text: str) -> Arrival | None:
    """The arrival of its form; None without one."""
    return msgspec.json.decode(text, type=Arrival) if text else None


def issuer_of_arrival(text: str) -> str:
    """The issuer of the provider that the person has come from, or "" without a text."""
    arrival = arrival_of_text(text)
    return arrival.issuer if arrival is not None else ""


def is_by_holder(connection: Connection, user: User, text: str) -> bool:
    """Whether the person is the holder of the address of the user, as the provider has said now or at another time."""
    arrival = arrival_of_text(text)
    if arrival is None:
        return False
    is_known = bool(issuer_of_known(connection, user, text))
    return arrival.is_of(user) or (is_known and arrival.issuer not in unverified_identities(connection, user.id))


def issuer_of_known(connection: Connection, user: User, text: str) -> str:
    """The issuer of the provider if the person who has come from there is connected with the user already, or ""."""
    arrival = arrival_of_text(text)
    known = None if arrival is None else user_of_identity(connection, arrival.issuer, arrival.subject)
    return arrival.issuer if arrival is not None and known is not None and known[0].id == user.id else ""


def connect(connection: Connection, user: User, issuer: str, subject: str, address: str, *, is_verified: bool) -> None:
    """Connect a user; SignInRefused if they, or the person, are connected already.

    `is_verified`: the provider calls the address of the user that of the person.
    """
    if has_identity(connection, user.id, issuer):
        raise SignInRefused(CONNECTED, detail="other_identity")
    insert_identity(connection, user.actor(address), user.id, issuer, subject, is_verified=is_verified)


def complete(connection: Connection, user: User, text: str, address: str) -> Completed:
    """Do what the sign-in of a person is to do once the code was right; nothing without a text.

    That is the connection of a person who was found by a verified address, the proof of the address, and what the
    claims give. SignInRefused if the person or the user was connected with somebody else meanwhile.
    """
    arrival = arrival_of_text(text)
    if arrival is None:
        return Completed()
    user = lock_user(connection, user.id)
    known = user_of_identity(connection, arrival.issuer, arrival.subject)
    is_verified = arrival.is_of(user)
    if known is None:
        if not (arrival.connects and is_verified):  # the connection has ended, or the user has another address
            raise SignInRefused(detail="changed")
        connect(connection, user, arrival.issuer, arrival.subject, address, is_verified=True)
    elif known[0].id != user.id:
        raise SignInRefused(TAKEN, detail="other_user")
    if is_verified:
        prove_by_provider(connection, user.actor(address), user, arrival.issuer)
    known = user_of_identity(connection, arrival.issuer, arrival.subject)  # with what ended connections gave
    if known is None:
        raise SignInRefused(TAKEN, detail="changed")
    if arrival.at < used_at(connection, arrival.issuer, arrival.subject):  # a later sign-in has said what claims give
        return Completed(arrival.issuer, arrival.provider)
    actor = by_configuration(f"oidc.{arrival.provider}", address)
    applied = apply_grants(connection, actor, known[0], arrival.issuer, arrival.granted)
    note_use(connection, arrival.issuer, arrival.subject, applied.remembered, is_verified=is_verified)
    return Completed(arrival.issuer, arrival.provider, applied.left)
