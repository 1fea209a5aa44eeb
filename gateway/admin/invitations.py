"""Invitations: to an account as owner or member, or to the site with a role. They work once, for 7 days."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, cast

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.admin.actor import AccountRole, Actor, ActorKind, SiteRole
from gateway.admin.audit_trail import record
from gateway.admin.directory import Directory
from gateway.admin.memberships import checked_account_role, put_membership, require_owner
from gateway.admin.password_hashes import PasswordHashes, checked_password
from gateway.admin.random_ids import new_id, new_token, token_hash
from gateway.admin.times import MICROSECOND, from_micros, from_micros_or_none, time_text
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, user_by_id, user_of
from gateway.admin.users import checked_role, insert_user, now
from gateway.admin.values import checked_name, normal_email
from gateway.database.people_tables import invitations, users
from gateway.errors import AlreadyExists, InvalidLink, InvalidValue, NotFound

LIFETIME = timedelta(days=7) // MICROSECOND
FORGOTTEN_AFTER = timedelta(days=30) // MICROSECOND  # the e-mail of one who did not come is not kept for longer
MOST_OPEN = 100  # for one account, or for the site
PATH = "/invitation"  # of the console
HIGHER = {"none": 0, "member": 1, "owner": 2, "viewer": 1, "operator": 2}


class Invitation(Struct, frozen=True):
    """An invitation without its token."""

    id: str
    email: str
    account: str  # "" for the site
    role: str  # in the account; "" for the site
    site_role: str
    created_by: str
    created: datetime
    expires: datetime
    used: datetime | None

    def json_form(self) -> dict[str, Any]:
        """The JSON document of an invitation."""
        form = structs.asdict(self)
        return form | {name: time_text(form[name]) for name in ("created", "expires", "used")}


class NewInvitation(Struct, frozen=True):
    """A new invitation with its link."""

    invitation: Invitation
    url: str
    token: str

    def __repr__(self) -> str:
        return f"NewInvitation(invitation={self.invitation.id!r}, url='***')"


class Invitations:
    """Makes, lists, withdraws and accepts invitations."""

    def __init__(self, transactions: Transactions, directory: Directory, hashes: PasswordHashes, base_url: str) -> None:
        self._transactions = transactions
        self._directory = directory
        self._hashes = hashes
        self._base = base_url

    async def to_account(self, actor: Actor, email: str, account: str, role: AccountRole) -> NewInvitation:
        """Invite to an account; an earlier open invitation of the same e-mail to it ends."""
        require_owner(actor, account)
        email, role = normal_email(email), checked_account_role(role)
        await self._directory.require(account)
        return await self._create(actor, {"email": email, "account": account, "role": role, "site_role": ""})

    async def to_site(self, actor: Actor, email: str, role: SiteRole) -> NewInvitation:
        """Invite to the site, with a role there or none."""
        actor.require("users")
        email, role = normal_email(email), checked_role(role)
        if role != "none":
            actor.require_operator()
        return await self._create(actor, {"email": email, "account": "", "role": "", "site_role": role})

    async def list(self, actor: Actor, account: str = "") -> list[Invitation]:
        """The open invitations to an account, or with "" to the site, newest first."""
        if not actor.may("read", account):
            require_owner(actor, account)
        return await self._transactions.read(_open, invitations.c.account == account)

    async def withdraw(self, actor: Actor, invitation_id: str) -> None:
        """End an open invitation; NotFound for one that the actor may not see, too."""
        await self._transactions.write(_withdraw, actor, invitation_id)

    async def find(self, token: str) -> Invitation:
        """What a link invites to, without using it; InvalidLink."""
        return await self._transactions.read(find_invitation, token_hash(token))

    async def is_for_user(self, token: str) -> bool:
        """Whether the invited person is a user already; InvalidLink."""
        invitation = await self.find(token)
        return await self._transactions.read(user_of, users.c.email == invitation.email) is not None

    async def accept(self, token: str, *, name: str = "", password: str | None = None, address: str = "") -> User:
        """Use an invitation. A new user gets this name and password; of a user who exists nothing else changes.

        InvalidLink, InvalidValue. The caller begins no session for a user who existed: they sign in as always.
        """
        invitation, name = await self.find(token), checked_name(name)
        hashed = None
        if password is not None:
            hashed = await self._hashes.hash(checked_password(password, email=invitation.email))
        try:
            return await self._transactions.write(use_invitation, token_hash(token), name, hashed, address)
        except AlreadyExists:  # the person became a user at this moment, by another invitation
            return await self._transactions.write(use_invitation, token_hash(token), name, None, address)

    async def _create(self, actor: Actor, values: dict[str, str]) -> NewInvitation:
        token = new_token()
        invitation = await self._transactions.write(_insert, actor, token, values)
        return NewInvitation(invitation, f"{self._base}{PATH}?token={token}", token)


def invitations_of(connection: Connection, email: str) -> list[Invitation]:
    """All invitations of an e-mail that are stored."""
    query = sa.select(invitations).where(invitations.c.email == email).order_by(invitations.c.created_at)
    return [_invitation(row) for row in connection.execute(query)]


def _insert(connection: Connection, actor: Actor, token: str, values: dict[str, str]) -> Invitation:
    at, table = now(), invitations.c
    replaced = sa.and_(table.email == values["email"], table.account == values["account"], table.used_at.is_(None))
    forgotten = table.expires_at < at - FORGOTTEN_AFTER
    connection.execute(invitations.delete().where(sa.or_(replaced, forgotten)))
    if len(_open(connection, table.account == values["account"])) >= MOST_OPEN:
        raise InvalidValue(f"There are {MOST_OPEN} open invitations already")
    row = {"id": new_id("inv"), "token_hash": token_hash(token), "created_by": actor.name}
    times = {"created_at": at, "expires_at": at + LIFETIME}
    connection.execute(invitations.insert().values(row | values | times))
    after = {name: values[name] for name in ("role", "site_role") if values[name]}
    record(connection, actor, "invitations.create", f"invitation:{row['id']}", account=values["account"], after=after)
    return _invitation(connection.execute(sa.select(invitations).where(table.id == row["id"])).one())


def _open(connection: Connection, condition: sa.ColumnElement[bool]) -> list[Invitation]:
    table = invitations.c
    query = sa.select(invitations).where(condition, table.used_at.is_(None), table.expires_at > now())
    return [_invitation(row) for row in connection.execute(query.order_by(table.created_at.desc()).limit(MOST_OPEN))]


def _withdraw(connection: Connection, actor: Actor, invitation_id: str) -> None:
    table = invitations.c
    row = connection.execute(sa.select(invitations).where(table.id == invitation_id)).one_or_none()
    if row is None or row.used_at is not None or not (actor.may("users", row.account) or actor.owns(row.account)):
        raise NotFound("There is no such invitation")
    connection.execute(invitations.delete().where(table.id == invitation_id))
    record(connection, actor, "invitations.withdraw", f"invitation:{invitation_id}", account=row.account)


def _valid(hashed_token: bytes) -> sa.ColumnElement[bool]:
    table = invitations.c
    return sa.and_(table.token_hash == hashed_token, table.used_at.is_(None), table.expires_at > now())


def find_invitation(connection: Connection, hashed_token: bytes) -> Invitation:
    """The valid invitation of a token, which stays valid; InvalidLink."""
    row = connection.execute(sa.select(invitations).where(_valid(hashed_token))).one_or_none()
    if row is None:
        raise InvalidLink
    return _invitation(row)


def use_invitation(connection: Connection, hashed_token: bytes, name: str, hashed: str | None, address: str) -> User:
    """As `Invitations.accept`, of checked values; `hashed` is the hash of the password."""
    invitation = find_invitation(connection, hashed_token)
    user = lock_user(connection, _invited_user(connection, invitation, name, hashed, address).id)
    if user.disabled is not None:
        raise InvalidLink
    # After the user, as a sign-up does: two transactions that lock both in different orders wait for each other.
    used = invitations.update().where(_valid(hashed_token)).values(used_at=now()).returning(invitations)
    row = connection.execute(used).one_or_none()
    if row is None:
        raise InvalidLink
    _give(connection, row, user, address)
    return user_by_id(connection, user.id)


def accounts_invited_to(connection: Connection, email: str) -> list[Invitation]:
    """The open invitations of an e-mail that give no role on the site."""
    table = invitations.c
    open_ = sa.and_(table.email == email, table.used_at.is_(None), table.expires_at > now())
    query = sa.select(invitations).where(open_, table.site_role.in_(("", "none"))).order_by(table.created_at)
    return [_invitation(row) for row in connection.execute(query)]


def use_invitations_of(connection: Connection, user: User, address: str) -> None:
    """Use what `accounts_invited_to` lists, for a new user whose e-mail is verified."""
    ids = [one.id for one in accounts_invited_to(connection, user.email)]
    still_open = sa.and_(invitations.c.id.in_(ids), invitations.c.used_at.is_(None))
    used = invitations.update().where(still_open).values(used_at=now()).returning(invitations)
    for row in connection.execute(used).all() if ids else ():
        _give(connection, row, user, address)


def _give(connection: Connection, row: sa.Row[Any], user: User, address: str) -> None:
    actor = user.actor(address)
    if row.account and HIGHER[row.role] > HIGHER[user.accounts.get(row.account, "none")]:
        put_membership(connection, actor, user, row.account, row.role)
    if row.site_role and HIGHER[row.site_role] > HIGHER[user.role]:
        connection.execute(users.update().where(users.c.id == user.id).values(role=row.site_role))
        sides = {"before": {"role": user.role}, "after": {"role": row.site_role}}
        record(connection, actor, "users.edit", f"user:{user.id}", **sides)
    after = {"user": user.id}
    record(connection, actor, "invitations.accept", f"invitation:{row.id}", account=row.account, after=after)


def _invited_user(connection: Connection, invitation: Invitation, name: str, hashed: str | None, address: str) -> User:
    user = user_of(connection, users.c.email == invitation.email)
    if user is not None:
        return user
    kind, _, id_ = invitation.created_by.partition(":")
    actor = Actor(kind=cast(ActorKind, kind), id=id_, address=address)
    user = insert_user(connection, actor, invitation.email, name, "none")
    if hashed is not None:
        values = {"password_hash": hashed, "password_set_at": now()}
        connection.execute(users.update().where(users.c.id == user.id).values(values))
    return user


def _invitation(row: sa.Row[Any]) -> Invitation:
    return Invitation(
        row.id,
        row.email,
        row.account,
        row.role,
        row.site_role,
        row.created_by,
        from_micros(row.created_at),
        from_micros(row.expires_at),
        from_micros_or_none(row.used_at),
    )
