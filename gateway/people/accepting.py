"""Accepting an invitation: who may, what becomes of the user, and what the invitation gives."""

from __future__ import annotations

from typing import Any, Literal, cast

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS, Actor, ActorKind
from gateway.admin.audit_trail import record
from gateway.admin.current_rights import issuer_of, require_current
from gateway.admin.times import now
from gateway.admin.user_rows import Roles, User, lock_user, user_by_id, user_of
from gateway.database.people_tables import invitations, users
from gateway.errors import Forbidden, InvalidLink, InvalidValue, NotFound, SignInToAccept
from gateway.people.entry_rights import maker_leads_into
from gateway.people.invitation_rows import (
    Invitation,
    accounts_invited_to,
    counting_without_acceptance,
    find_invitation,
    is_valid,
)
from gateway.people.makers import maker_of
from gateway.people.memberships import put_membership
from gateway.people.proofs import has_been_entered, prove
from gateway.people.role_rights import (
    giver_of,
    gives_by_hand,
    keep_granted,
    may_give_claimed,
    take_from_claims,
)
from gateway.people.take_over import may_be_taken_over, take_over
from gateway.people.users import end_links, insert_user

#: `new`: they become a user. `accept`: they are signed in as the invited user. `take_over`: they are a user whose
#: address is not proved, and set the password anew. `confirm`: the same, but the link alone does not suffice: they are
#: signed in as this user, and show that it is not somebody else at their browser. `sign_in`: they have to sign in as
#: the invited user before.
Way = Literal["new", "accept", "take_over", "confirm", "sign_in"]

GIVEN_BEFORE = (
    "A sign-in service gave you this role before, and gives the person who invited you their right, too. So they "
    "cannot give it to you for good: sign in by the service, or ask an operator for an invitation"
)


class Holder(Struct, frozen=True, kw_only=True):
    """Who has the link, and how they will sign in: by a password with this hash, or by a provider."""

    name: str = ""
    password_hash: str | None = None
    issuer: str = ""
    signed_in: Actor | None = None
    is_confirmed: bool = False  # the person who is signed in has given the password, or has signed in recently
    address: str = ""

    @property
    def user_id(self) -> str:
        """The id of the user who is signed in, or ""."""
        return self.signed_in.id if self.signed_in is not None else ""

    def __repr__(self) -> str:
        return f"Holder(user_id={self.user_id!r})"


def way_of(connection: Connection, invitation: Invitation, user_id: str, *, by_provider: bool = False) -> Way:
    """How the invited person accepts; `user_id` is that of the user who is signed in, or "".

    `by_provider`: the user has come by a provider, and was not asked for the code.
    """
    user = user_of(connection, users.c.email == invitation.email)
    if user is None:
        return "new"
    is_user = user.id == user_id and not (by_provider and user.has_second_factor)
    if user.is_proved:
        return "accept" if is_user else "sign_in"
    if invitation.is_mailed:  # nobody but the holder of the address has seen it; but it does not replace a code
        leads = not user.has_second_factor or may_be_taken_over(connection, user)
    else:
        leads = maker_leads_into(connection, invitation.created_by, invitation.maker_issuer, user)
    if leads:
        return "take_over"
    return "confirm" if is_user else "sign_in"


def user_to_take_over(
    connection: Connection, hashed_token: bytes, user_id: str, *, by_provider: bool = False
) -> User | None:
    """The user whose API keys end when the invitation is accepted, or None; InvalidLink. Arguments as of `way_of`."""
    invitation = find_invitation(connection, hashed_token)
    if way_of(connection, invitation, user_id, by_provider=by_provider) not in ("take_over", "confirm"):
        return None
    user = user_of(connection, users.c.email == invitation.email)
    if user is None or user.disabled is not None or not has_been_entered(connection, user):
        return None
    return user


def use_invitation(connection: Connection, hashed_token: bytes, holder: Holder) -> User:
    """Use an invitation: the user, with what it gives. InvalidLink, SignInToAccept, AlreadyExists.

    NotSignedIn if the session of the holder has ended meanwhile: somebody else may be the user now.
    """
    if holder.signed_in is not None:
        require_current(connection, holder.signed_in)
    invitation = find_invitation(connection, hashed_token)
    user = lock_user(connection, _invited_user(connection, invitation, holder).id)
    if user.disabled is not None:
        raise InvalidLink
    find_invitation(connection, hashed_token)  # again: with the rights that its maker has once the user is locked
    # After the user, as a sign-up does: two transactions that lock both in different orders wait for each other.
    used = invitations.update().where(is_valid(hashed_token)).values(used_at=now()).returning(invitations)
    row = connection.execute(used).one_or_none()
    if row is None:
        raise InvalidLink
    session = holder.signed_in.session if holder.user_id == user.id and holder.signed_in else ""
    _give(connection, row, user, user.actor(holder.address, session))
    return user_by_id(connection, user.id)


def use_invitations_of(connection: Connection, user: User, address: str) -> None:
    """Use what `counting_without_acceptance` lists, for a new user whose e-mail is verified."""
    for row in _used(connection, [one.id for one in counting_without_acceptance(connection, user.email)]):
        _give(connection, row, user, user.actor(address))


def open_to(connection: Connection, user_id: str) -> list[Invitation]:
    """The invitations to accounts that a user may accept without their links: the address of the user is proved."""
    user = user_by_id(connection, user_id, Roles())
    if not user.is_proved or user.disabled is not None:
        return []
    found = accounts_invited_to(connection, user.email)
    user = user_by_id(connection, user_id, Roles({one.account for one in found}))
    return [one for one in found if ROLE_RANKS[one.role] > ROLE_RANKS[user.accounts.get(one.account, "none")]]


def accept_own(connection: Connection, actor: Actor, invitation_id: str) -> None:
    """Use one of `open_to` for the actor; NotFound for any other."""
    user = lock_user(connection, actor.id)
    known = [one.id for one in open_to(connection, user.id) if one.id == invitation_id]
    used = _used(connection, known)
    if not used:
        raise NotFound("There is no such invitation")
    _give(connection, used[0], user, actor)


def _used(connection: Connection, ids: list[str]) -> list[sa.Row[Any]]:
    """Mark open invitations as used; their rows."""
    if not ids:
        return []
    still_open = sa.and_(invitations.c.id.in_(ids), invitations.c.used_at.is_(None))
    used = invitations.update().where(still_open).values(used_at=now()).returning(invitations)
    return list(connection.execute(used).all())


def _give(connection: Connection, row: sa.Row[Any], user: User, actor: Actor) -> None:
    """`actor`: the user, in the session in which they accept."""
    maker = maker_of(connection, row.created_by, row.maker_issuer)
    if row.account and ROLE_RANKS[row.role] > ROLE_RANKS[user.accounts.get(row.account, "none")]:
        if not may_give_claimed(connection, maker, user, row.role, row.account):
            raise Forbidden(GIVEN_BEFORE)
        put_membership(connection, actor, user, row.account, row.role, given_by=giver_of(maker))
    elif (row.role or row.site_role) == (user.accounts.get(row.account) if row.account else user.role):
        if gives_by_hand(connection, maker, row.account):  # else it stays one of claims
            keep_granted(connection, actor, user, row.account, giver=maker)
    elif row.site_role and ROLE_RANKS[row.site_role] > ROLE_RANKS[user.role]:
        take_from_claims(connection, actor, user)
        connection.execute(users.update().where(users.c.id == user.id).values(role=row.site_role))
        sides = {"before": {"role": user.role}, "after": {"role": row.site_role}}
        record(connection, actor, "users.edit", f"user:{user.id}", **sides)
    after = {"user": user.id}
    record(connection, actor, "invitations.accept", f"invitation:{row.id}", account=row.account, after=after)


def _invited_user(connection: Connection, invitation: Invitation, holder: Holder) -> User:
    user = user_of(connection, users.c.email == invitation.email)
    if user is not None:
        user = lock_user(connection, user.id)
        if user.email != invitation.email:  # changed meanwhile
            raise InvalidLink
        way = way_of(connection, invitation, holder.user_id, by_provider=bool(holder.issuer))
        if way == "sign_in" or (way == "confirm" and not holder.is_confirmed):
            raise SignInToAccept
        if way in ("take_over", "confirm"):
            _take_over(connection, user, holder)
    else:
        kind, _, id_ = invitation.created_by.partition(":")
        actor = Actor(kind=cast(ActorKind, kind), id=id_, address=holder.address)
        user = insert_user(connection, actor, invitation.email, holder.name, "none")
        _set_password(connection, user, holder)
    if invitation.is_mailed and not holder.issuer:  # a message that was handed on does not say who has the mailbox
        prove(connection, user.actor(holder.address), user, "mail")
    return user


def _take_over(connection: Connection, user: User, holder: Holder) -> None:
    if holder.password_hash is None and not holder.issuer:
        raise InvalidValue("Set a password to accept", param="password")
    if has_been_entered(connection, user):
        kept = holder.issuer
        if not kept and holder.signed_in is not None and holder.user_id == user.id:
            kept = issuer_of(connection, holder.signed_in)  # by which they are signed in
        take_over(connection, user.actor(holder.address), user, keep_issuer=kept)
    else:
        end_links(connection, user.id)  # others may have one
    _set_password(connection, user, holder)
    if holder.name:
        connection.execute(users.update().where(users.c.id == user.id).values(name=holder.name))


def _set_password(connection: Connection, user: User, holder: Holder) -> None:
    if holder.password_hash is not None:
        values = {"password_hash": holder.password_hash, "password_set_at": now()}
        connection.execute(users.update().where(users.c.id == user.id).values(values))
