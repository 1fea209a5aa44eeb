"""Which user a person of a provider is, and the transactions with which the person enters."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor, by_configuration
from gateway.admin.times import now
from gateway.admin.user_rows import User, lock_user, user_by_id, user_of
from gateway.database.people_tables import users
from gateway.errors import SignInRefused
from gateway.people.accepting import Holder, use_invitation, user_to_take_over
from gateway.people.arrivals import CONNECTED, Arrival, address_hash, connect
from gateway.people.grants import apply_grants
from gateway.people.identities import has_identity, insert_identity, is_connected, note_use, user_of_identity
from gateway.people.invitation_rows import find_invitation
from gateway.people.newcomers import UNKNOWN
from gateway.people.oidc.person import Person
from gateway.people.proofs import has_been_entered
from gateway.people.sessions import NewSession, insert_session
from gateway.people.sign_in import Client, SecondStep, session_or_second_step
from gateway.people.take_over import may_be_taken_over, prove_by_provider, take_over_by_address

#: `password`: it is asked for, or, if the user may be taken over, all that was set up for the user is to end.
Match = Literal["known", "by_email", "password", "none"]
OTHER = "Another person of this sign-in service is connected with the user of your e-mail address. Ask your operator"
UNVERIFIED = "The sign-in service does not say that your e-mail address is verified, so no user can be found by it"
GIVEN = (
    "The user of your e-mail address has a role, and nothing shows that you are this user. Sign in as always and "
    "connect this sign-in on your profile, or ask your operator to mark your address as proved"
)
ELSEWHERE = (
    "The user of your e-mail address signs in by another service. Sign in there, and connect this one afterwards"
)
EXISTS = "There is a user of this address already. Sign in as always, then open the invitation again"
NOT_INVITED = "The sign-in service verifies another address of you than the invited one. Ask for an invitation of yours"
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
    is_free = may_be_taken_over(connection, user)
    if is_free and (user.has_password or is_connected(connection, user.id)):
        return "password", user.id  # or `enter_anew`: somebody else may have set it, or connected themselves
    if has_identity(connection, user.id, person.issuer):
        raise SignInRefused(OTHER, detail="other_identity")
    if user.has_password:
        return "password", user.id
    if is_connected(connection, user.id):
        # Somebody else may have accepted the invitation of this address, and would share the user.
        raise SignInRefused(ELSEWHERE, detail="other_identity")
    if not is_free and _shares(connection, user):
        raise SignInRefused(GIVEN, detail="not_proved")
    return "by_email", user.id


def require_active(user: User) -> None:
    """SignInRefused for a disabled user."""
    if user.disabled is not None:
        raise SignInRefused(UNKNOWN, detail="disabled")


def connect_signed_in(connection: Connection, actor: Actor, person: Person) -> None:
    """Connect a user who is signed in."""
    user = lock_user(connection, actor.id)
    require_active(user)
    is_verified = person.email == user.email
    connect(connection, user, person.issuer, person.subject, actor.address, is_verified=is_verified)


def entered_by_others(connection: Connection, person: Person) -> User | None:
    """The user whose API keys end when the person enters by their e-mail address, or None; SignInRefused."""
    found, user_id = match(connection, person)
    user = user_by_id(connection, user_id) if found == "by_email" else None
    return user if user is not None and _shares(connection, user) else None


def enter_by_email(connection: Connection, person: Person, client: Client) -> Entry:
    """`enter_as` the user of the e-mail address, who has no password.

    If somebody has entered as this user by a link, and nothing shows that it was the holder of the address, all that
    this somebody has made ends. The caller ends the API keys.
    """
    found, user_id = match(connection, person)  # again: the user may have changed meanwhile
    if found == "by_email":
        lock_user(connection, user_id)
        found, user_id = match(connection, person)  # as the lock has found it
    if found != "by_email":
        raise SignInRefused(detail="changed")
    user = user_by_id(connection, user_id)
    if _shares(connection, user):
        take_over_by_address(connection, user.actor(client.address), user)
    return enter_as(connection, user_id, person, client)


def enter_anew(connection: Connection, user_id: str, person: Person, client: Client) -> Entry:
    """`enter_as` a user who may be taken over, without the password: all that was set up for the user ends.

    The caller ends the API keys. SignInRefused if the user may not be taken over, or has another address.
    """
    user = lock_user(connection, user_id)
    require_active(user)
    if user.email != person.email or not may_be_taken_over(connection, user):
        raise SignInRefused(detail="changed")
    take_over_by_address(connection, user.actor(client.address), user)
    return enter_as(connection, user_id, person, client)


def _shares(connection: Connection, user: User) -> bool:
    """Whether others may have entered as the user; a second factor is asked for, and shows who comes."""
    return not user.is_proved and not user.has_second_factor and has_been_entered(connection, user)


def enter_as(connection: Connection, user_id: str, person: Person, client: Client) -> Entry:
    """Connect a person with the user of their address and enter.

    For a user with a second factor, only once the code was right. SignInRefused if the user has another address now.
    """
    user = lock_user(connection, user_id)
    require_active(user)
    if user.email != person.email:
        raise SignInRefused(detail="changed")
    if has_identity(connection, user_id, person.issuer):
        raise SignInRefused(CONNECTED, detail="other_identity")
    if user.has_second_factor:
        return _ask_code(connection, user, person, client, connects=True)
    actor = user.actor(client.address)
    insert_identity(connection, actor, user_id, person.issuer, person.subject, is_verified=True)
    prove_by_provider(connection, actor, user, person.issuer)  # `match` has found the user by a verified address
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
    if known[0].id != user.id:
        raise SignInRefused(detail="changed")
    if user.has_second_factor:
        return _ask_code(connection, user, person, client, connects=False)
    if person.email == user.email:  # it is verified
        prove_by_provider(connection, user.actor(client.address), user, person.issuer)
        user = user_by_id(connection, user.id)  # without what ended connections gave
    actor = by_configuration(f"oidc.{person.provider}", client.address)
    applied = apply_grants(connection, actor, user, person.issuer, person.granted)
    is_verified = person.email == user.email
    note_use(connection, person.issuer, person.subject, applied.remembered, is_verified=is_verified)
    user = user_by_id(connection, user.id)
    by, place = f"oidc.{person.provider}", {"address": client.address, "user_agent": client.user_agent}
    session = insert_session(connection, user, **place, by=by, issuer=person.issuer)
    return Entry(session, user.id, applied.left)


def _ask_code(connection: Connection, user: User, person: Person, client: Client, *, connects: bool) -> Entry:
    """Nothing changes before the code was right."""
    address = address_hash(user.id, person.email) if person.email else ""
    arrival = Arrival(person.provider, person.issuer, person.subject, person.granted, connects, address, now())
    by = f"oidc.{person.provider}"
    begun = session_or_second_step(connection, user, client, by=by, issuer=person.issuer, arrival=arrival.text())
    return Entry(begun, user.id, [])


def accept_invitation(connection: Connection, hashed: bytes, person: Person, address: str) -> None:
    """Accept as the invited person, who becomes a user; or as a user who is connected already.

    An invitation gives access to no other user who exists: the person who invites may have its link. Nor does it make
    a user of the invited address for a person of another one: claims of the person would be for who has the mailbox.
    """
    email = find_invitation(connection, hashed).email
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is not None and known[0].email != email:
        raise SignInRefused(NOT_YOURS, detail="other_user")
    if known is None and user_of(connection, users.c.email == email) is not None:
        raise SignInRefused(EXISTS, detail="user_exists")
    if known is None and person.email not in ("", email):
        raise SignInRefused(NOT_INVITED, detail="other_address")
    # The actor has no rights: none are needed, and those from claims do not count before the sign-in.
    signed_in = Actor(kind="user", id=known[0].id, address=address) if known is not None else None
    holder = Holder(
        name=person.name, issuer=person.issuer, signed_in=signed_in, is_confirmed=known is not None, address=address
    )
    user = use_invitation(connection, hashed, holder)
    if known is None:
        if user.has_password or is_connected(connection, user.id):  # became a user by another link at the same moment
            raise SignInRefused(EXISTS, detail="user_exists")
        verified = person.email == email
        insert_identity(connection, user.actor(address), user.id, person.issuer, person.subject, is_verified=verified)
    if person.email == email:
        prove_by_provider(connection, user.actor(address), user, person.issuer)


def taken_over_by(connection: Connection, hashed: bytes, person: Person) -> User | None:
    """The user whose API keys end when the person accepts the invitation, or None; InvalidLink."""
    known = user_of_identity(connection, person.issuer, person.subject)
    if known is None:
        return None
    return user_to_take_over(connection, hashed, known[0].id, by_provider=True)
