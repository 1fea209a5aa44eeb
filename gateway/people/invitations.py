"""Invitations: to an account as owner or member, or to the site with a role. They work once, for 7 days."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from typing import TypeVar

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.accounts.accounts import Directory
from gateway.admin.actor import AccountRole, Actor, SiteRole
from gateway.admin.audit_trail import record
from gateway.admin.current_rights import ends_with, issuer_of
from gateway.admin.rights import manages_members
from gateway.admin.times import MICROSECOND, now
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User
from gateway.admin.values import checked_name, normal_email
from gateway.database.people_tables import invitations
from gateway.errors import AlreadyExists, InvalidValue, NotFound, SignInToAccept
from gateway.people.accepting import Holder, Way, accept_own, open_to, use_invitation, user_to_take_over, way_of
from gateway.people.invitation_rows import Invitation, find_invitation, invitation_of
from gateway.people.makers import is_operator
from gateway.people.member_keys import MemberKeys
from gateway.people.memberships import checked_account_role, require_owner
from gateway.people.password_hashes import PasswordHashes, checked_password
from gateway.people.random_ids import new_id, new_token, token_hash
from gateway.people.role_rights import require_may_pass_on, require_role
from gateway.people.sign_in_limits import SignInLimits
from gateway.people.users import checked_role

T = TypeVar("T")
LIFETIME = timedelta(days=7) // MICROSECOND
FORGOTTEN_AFTER = timedelta(days=30) // MICROSECOND  # the e-mail of one who did not come is not kept for longer
MOST_OPEN = 100  # of one maker, for one account or for the site
MOST_OF_ALL = 1000  # of all makers there; operators do not wait for others to be used
NO_ROLE = ("", "none")  # on the site
PATH = "/invitation"  # of the console


class NewInvitation(Struct, frozen=True):
    """A new invitation with its link."""

    invitation: Invitation
    url: str
    token: str

    def __repr__(self) -> str:
        return f"NewInvitation(invitation={self.invitation.id!r}, url='***')"


class Invitations:
    """Makes, lists, withdraws and accepts invitations."""

    def __init__(
        self,
        transactions: Transactions,
        directory: Directory,
        hashes: PasswordHashes,
        base_url: str,
        keys: MemberKeys,
        limits: Callable[[], SignInLimits],
    ) -> None:
        self._transactions = transactions
        self._limits = limits  # made when they are needed: they read the pepper
        self._directory = directory
        self._hashes = hashes
        self._base = base_url
        self._keys = keys

    async def to_account(
        self, actor: Actor, email: str, account: str, role: AccountRole, *, to_be_sent: bool = False
    ) -> NewInvitation:
        """Invite to an account; an earlier open invitation of the same e-mail to it ends.

        `to_be_sent`: the link goes to the address and is shown to nobody. Then earlier invitations end with
        `note_mailed`, so that one that is not sent ends none.
        Forbidden for an actor that may not do itself what the role allows.
        """
        require_owner(actor, account)
        email, role = normal_email(email), checked_account_role(role)
        require_role(actor, account, role)
        await self._directory.require(account)
        values = {"email": email, "account": account, "role": role, "site_role": ""}
        return await self._create(actor, values, to_be_sent)

    async def to_site(self, actor: Actor, email: str, role: SiteRole, *, to_be_sent: bool = False) -> NewInvitation:
        """Invite to the site, with a role there or none; otherwise as `to_account`."""
        actor.require("users")
        email, role = normal_email(email), checked_role(role)
        if role != "none":
            actor.require_operator()
        values = {"email": email, "account": "", "role": "", "site_role": role}
        return await self._create(actor, values, to_be_sent)

    async def list(self, actor: Actor, account: str = "") -> list[Invitation]:
        """The open invitations to an account, or with "" to the site, newest first."""
        if not actor.may("read", account):
            require_owner(actor, account)
        return await self._transactions.read(_open, invitations.c.account == account)

    async def withdraw(self, actor: Actor, invitation_id: str) -> None:
        """End an open invitation; NotFound for one that the actor may not see, too.

        Only operators end one that gives a role on the site.
        """
        await self._transactions.write_as(actor, _withdraw, invitation_id)

    async def find(self, token: str) -> Invitation:
        """What a link invites to, without using it; InvalidLink."""
        return await self._transactions.read(find_invitation, token_hash(token))

    async def way_of(self, token: str, user_id: str = "") -> Way:
        """How the person with this link accepts; `user_id` is that of the user who is signed in, or "". InvalidLink."""
        invitation = await self.find(token)
        return await self._transactions.read(way_of, invitation, user_id)

    async def accept(
        self,
        token: str,
        *,
        name: str = "",
        password: str | None = None,
        address: str = "",
        signed_in: Actor | None = None,
        is_confirmed: bool = False,
    ) -> User:
        """Use an invitation; `signed_in` is the user who is signed in. A new user gets name and password.

        A user whose address is not proved gets them too: everything by which somebody else may be this user ends, with
        their API keys. Nothing else of a user whose address is proved changes; they are signed in. `is_confirmed`: see
        `Holder`. InvalidLink, InvalidValue, SignInToAccept, NotSignedIn; SignInLimited for a link that was tried many
        times.
        """
        holder = Holder(name=name, signed_in=signed_in, is_confirmed=is_confirmed, address=address)
        invitation, name = await self.find(token), checked_name(name)
        hashed = None
        if password is not None:
            checked_password(password, email=invitation.email)
            way = await self._transactions.read(way_of, invitation, holder.user_id)
            must_sign_in = way == "sign_in" or (way == "confirm" and not is_confirmed)
            # Links that cannot be used keep nobody at the address from using theirs, and cost no hash.
            await self._limits().attempt_link(token, "" if must_sign_in else address)
            if must_sign_in:
                raise SignInToAccept
            hashed = await self._hashes.hash(password, address)
        holder = structs.replace(holder, name=name, password_hash=hashed)
        ended = None
        if hashed is not None:
            ended = await self._transactions.read(user_to_take_over, token_hash(token), holder.user_id)
        use = partial(use_invitation, hashed_token=token_hash(token), holder=holder)
        try:
            user = await self.take_over(ended, address, use)
        except AlreadyExists:  # the person became a user at this moment, by another invitation
            user = await self.take_over(ended, address, use)
        if hashed is not None:
            await self._limits().link_worked(token, address)
        return user

    async def of_person(self, actor: Actor) -> Sequence[Invitation]:
        """The open invitations to accounts of the address of a user who is signed in, if the address is proved."""
        return await self._transactions.read(open_to, actor.id) if actor.kind == "user" else []

    async def accept_own(self, actor: Actor, invitation_id: str) -> None:
        """Accept one of `of_person`, without its link; NotFound for any other."""
        await self._transactions.write_as(actor, accept_own, invitation_id)

    async def take_over(self, user: User | None, address: str, change: Callable[[Connection], T]) -> T:
        """Write a change that takes over a user, and revoke their API keys; without a user, the change alone."""
        if user is None:
            return await self._transactions.write(change)
        return await self._keys.revoke_with(user.actor(address), user.id, user.accounts, change)

    async def note_mailed(self, invitation_id: str, is_mailed: bool) -> None:
        """Note that the link was sent to the address, or that it is shown instead; earlier invitations end."""
        await self._transactions.write(_note_mailed, invitation_id, is_mailed)

    async def _create(self, actor: Actor, values: dict[str, str], to_be_sent: bool) -> NewInvitation:
        token = new_token()
        invitation = await self._transactions.write_as(actor, _insert, token, values, to_be_sent)
        return NewInvitation(invitation, f"{self._base}{PATH}?token={token}", token)


def _insert(
    connection: Connection, actor: Actor, token: str, values: dict[str, str], to_be_sent: bool = False
) -> Invitation:
    require_may_pass_on(connection, actor, values["role"] or values["site_role"], values["account"])
    at, table = now(), invitations.c
    connection.execute(invitations.delete().where(table.expires_at < at - FORGOTTEN_AFTER))
    replaced = _replaced_by(values["email"], values["account"], by_operator=actor.is_operator)
    if not to_be_sent:
        connection.execute(invitations.delete().where(replaced))
    _check_count(connection, actor, values["account"], but=replaced)
    row = {"id": new_id("inv"), "token_hash": token_hash(token), "created_by": actor.name}
    row |= {"maker_issuer": issuer_of(connection, actor)}
    times = {"created_at": at, "expires_at": ends_with(connection, actor, at + LIFETIME)}
    mailed = {"mailed_at": at if to_be_sent else None}
    connection.execute(invitations.insert().values(row | values | times | mailed))
    after = {name: values[name] for name in ("role", "site_role") if values[name]}
    record(connection, actor, "invitations.create", f"invitation:{row['id']}", account=values["account"], after=after)
    return invitation_of(connection.execute(sa.select(invitations).where(table.id == row["id"])).one())


def _replaced_by(email: str, account: str, *, by_operator: bool) -> sa.ColumnElement[bool]:
    """The open invitations that end with another one of the same e-mail, to the same account or to the site."""
    table = invitations.c
    same = sa.and_(table.email == email, table.account == account, table.used_at.is_(None))
    return same if by_operator else sa.and_(same, table.site_role.in_(NO_ROLE))


def _check_count(connection: Connection, actor: Actor, account: str, *, but: sa.ColumnElement[bool]) -> None:
    """InvalidValue if the maker has too many open ones, so that one maker leaves room to the others."""
    makers = [one.created_by for one in _open(connection, sa.and_(invitations.c.account == account, sa.not_(but)))]
    if makers.count(actor.name) >= MOST_OPEN:
        raise InvalidValue(f"You have {MOST_OPEN} open invitations there already")
    if len(makers) >= MOST_OF_ALL and not actor.is_operator:
        raise InvalidValue(f"There are {MOST_OF_ALL} open invitations already")


def _open(connection: Connection, condition: sa.ColumnElement[bool]) -> list[Invitation]:
    table = invitations.c
    query = sa.select(invitations).where(condition, table.used_at.is_(None), table.expires_at > now())
    return [invitation_of(row) for row in connection.execute(query.order_by(table.created_at.desc()))]


def _withdraw(connection: Connection, actor: Actor, invitation_id: str) -> None:
    table = invitations.c
    row = connection.execute(sa.select(invitations).where(table.id == invitation_id)).one_or_none()
    if row is None or row.used_at is not None or not manages_members(actor, row.account):
        raise NotFound("There is no such invitation")
    if row.site_role not in NO_ROLE:
        actor.require_operator()
    connection.execute(invitations.delete().where(table.id == invitation_id))
    record(connection, actor, "invitations.withdraw", f"invitation:{invitation_id}", account=row.account)


def _note_mailed(connection: Connection, invitation_id: str, is_mailed: bool) -> None:
    """Nothing ends if the invitation has ended meanwhile, with the rights of its maker or by a newer one."""
    table = invitations.c
    noted = invitations.update().where(table.id == invitation_id).values(mailed_at=now() if is_mailed else None)
    row = connection.execute(noted.returning(invitations)).one_or_none()
    if row is not None:
        by_operator = is_operator(connection, row.created_by, row.maker_issuer)
        replaced = _replaced_by(row.email, row.account, by_operator=by_operator)
        connection.execute(invitations.delete().where(replaced, table.created_at < row.created_at))
