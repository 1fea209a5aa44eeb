"""Which user a person of a provider is, and the transactions with which the person enters."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import by_configuration
from gateway.admin.identities import has_identity, insert_identity, is_connected, note_use, user_of_identity
from gateway.admin.invitations import find_invitation, use_invitation
from gateway.admin.newcomers import UNKNOWN
from gateway.admin.oidc.arrivals import CONNECTED, Arrival, connect
from gateway.admin.oidc.grants import apply_grants
from gateway.admin.oidc.person import Person
from gateway.admin.sessions import NewSession
from gateway.admin.sign_in import Client, SecondStep, session_or_second_step
from gateway.admin.user_rows import User, lock_user, user_by_id, user_of
from gateway.database.people_tables import users
from gateway.errors import SignInRefused

Match = Literal["known", "by_email", "password", "none"]
OTHER = "Another person of this sign-in service is connected with the user of your e-mail address. Ask your operator"
UNVERIFIED = "The sign-in service does not say that your e-mail address is verified, so no user can be found by it"
ELSEWHERE = (
    "The user of your e-mail address signs in by another service. Sign in there, and connect this one afterwards"
)
EXISTS = "There is a user of this address already. Sign in as always, then open the invitation again"
NOT_YOURS = "You are known here as another user, not as the invited one"


class Entry(Struct, frozen=True):
    """What a person gets, and the accounts that the user has to leave."""

    begun: NewSession | SecondStep
    user_id: str
    left: list[str]


def match(connection: Connection, person: Person) -> tuple[Match, str]:
    """How a person is found, and the id of their user; SignInRefused."""
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is not None:
        require_active(known[0])
        return "known", known[0].id
    if not person.email:
        raise SignInRefused(UNVERIFIED, detail="email")
    user = user_of(connection, users.c.email == person.email)
    if user is None:
        return "none", ""
    require_active(user)
    if has_identity(connection, user.id, person.issuer):
        raise SignInRefused(OTHER, detail="other_identity")
    if user.has_password:
        return "password", user.id
    if is_connected(connection, user.id):
        # Somebody else may have accepted the invitation of this address, and would share the user.
        raise SignInRefused(ELSEWHERE, detail="other_identity")
    return "by_email", user.id


def require_active(user: User) -> None:
    """SignInRefused for a disabled user."""
    if user.disabled is not None:
        raise SignInRefused(UNKNOWN, detail="disabled")


def connect_signed_in(connection: Connection, user_id: str, person: Person, address: str) -> None:
    """Connect a user who is signed in."""
    user = lock_user(connection, user_id)
    require_active(user)
    connect(connection, user, person.issuer, person.subject, address)


def enter_by_email(connection: Connection, person: Person, client: Client) -> Entry:
    """`enter_as` the user of the e-mail address, who has no password."""
    found, user_id = match(connection, person)  # again: the user may have changed meanwhile
    if found == "by_email":
        lock_user(connection, user_id)
        found, user_id = match(connection, person)  # as the lock has found it
    if found != "by_email":
        raise SignInRefused(detail="changed")
    return enter_as(connection, user_id, person, client)


def enter_as(connection: Connection, user_id: str, person: Person, client: Client) -> Entry:
    """Connect a person with a user and enter; for a user with a second factor, only once the code was right."""
    user = lock_user(connection, user_id)
    require_active(user)
    if has_identity(connection, user_id, person.issuer):
        raise SignInRefused(CONNECTED, detail="other_identity")
    if user.has_second_factor:
        arrival = Arrival(person.provider, person.issuer, person.subject, person.granted)
        return Entry(_begin(connection, user, client, arrival), user_id, [])
    insert_identity(connection, user.actor(client.address), user_id, person.issuer, person.subject)
    return enter(connection, person, client)


def enter(connection: Connection, person: Person, client: Client) -> Entry:
    """Enter as a person who is connected: apply what the claims give, and begin."""
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is None:
        raise SignInRefused(UNKNOWN, detail="unknown")
    user = lock_user(connection, known[0].id)
    require_active(user)
    known = user_of_identity(connection, person.issuer, person.subject)  # as the lock has found it
    if known is None:
        raise SignInRefused(UNKNOWN, detail="unknown")
    actor = by_configuration(f"oidc.{person.provider}", client.address)
    applied = apply_grants(connection, actor, user, known[1], person.granted)
    note_use(connection, person.issuer, person.subject, applied.remembered)
    user = user_by_id(connection, user.id)
    return Entry(_begin(connection, user, client, Arrival(person.provider, person.issuer)), user.id, applied.left)


def accept_invitation(connection: Connection, hashed: bytes, person: Person, address: str) -> None:
    """Accept as the invited person, who becomes a user; or as a user who is connected already.

    An invitation never leads into an existing user: the person who invites may have its link.
    """
    email = find_invitation(connection, hashed).email
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is not None and known[0].email != email:
        raise SignInRefused(NOT_YOURS, detail="other_user")
    if known is None and user_of(connection, users.c.email == email) is not None:
        raise SignInRefused(EXISTS, detail="user_exists")
    user = use_invitation(connection, hashed, person.name, None, address)
    if known is None:
        if user.has_password or is_connected(connection, user.id):  # became a user by another link at the same moment
            raise SignInRefused(EXISTS, detail="user_exists")
        insert_identity(connection, user.actor(address), user.id, person.issuer, person.subject)


def _begin(connection: Connection, user: User, client: Client, arrival: Arrival) -> NewSession | SecondStep:
    by = f"oidc.{arrival.provider}"
    return session_or_second_step(connection, user, client, by=by, issuer=arrival.issuer, arrival=arrival.text())
