"""Signing in: by password, by link, and the second step with a code. Each way ends in a session."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.oidc.arrivals import complete
from gateway.admin.password_hashes import PasswordHashes, checked_password
from gateway.admin.second_factor import use_code
from gateway.admin.secret_box import SecretBox
from gateway.admin.sessions import NewSession, delete_sessions, insert_session
from gateway.admin.sign_in_limits import SignInLimits
from gateway.admin.sign_in_links import (
    PASSWORD,
    SECOND_STEP,
    SIGN_IN,
    arrival_of,
    delete_second_steps,
    find_link,
    insert_link,
    use_link,
)
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, user_by_id
from gateway.admin.users import now
from gateway.admin.values import normal_email
from gateway.database.people_tables import users
from gateway.errors import Forbidden, InvalidLink, InvalidValue, SignInFailed


class Client(Struct, frozen=True):
    """Where a person signs in from, for the list of sessions and the limits."""

    address: str = ""
    user_agent: str = ""


class SecondStep(Struct, frozen=True):
    """The password or link was right, and a code is asked for: `SignIn.with_code` takes this token with it."""

    token: str

    def __repr__(self) -> str:
        return "SecondStep(token='***')"


class SignIn:
    """Begins sessions, and sets passwords."""

    def __init__(
        self, transactions: Transactions, hashes: PasswordHashes, limits: SignInLimits, box: SecretBox
    ) -> None:
        self._transactions = transactions
        self._hashes = hashes
        self._limits = limits
        self._box = box  # of the second factors

    async def with_password(self, email: str, password: str, client: Client) -> NewSession | SecondStep:
        """SignInFailed for an unknown e-mail, a wrong password and a disabled user alike, after the same time."""
        try:
            email = normal_email(email)
        except InvalidValue:
            email = ""
        await self._limits.attempt(f"email {email}", client.address)
        row = await self._transactions.read(credentials, users.c.email == email)
        stored = row.password_hash if row is not None and row.disabled_at is None else None
        verified = await self._hashes.verify(stored, password)
        if row is None or not verified.is_right:
            raise SignInFailed
        begun = await self._transactions.write(_begin, row.id, row.password_hash, verified.new_hash, client)
        if isinstance(begun, NewSession):
            await self._limits.succeeded(f"email {email}", client.address)
        else:  # the e-mail's attempts are taken back when the code was right, too
            await self._limits.succeeded("", client.address)
        return begun

    async def with_code(self, token: str, code: str, client: Client) -> NewSession:
        """The second step; SignInFailed for a wrong code, InvalidLink after ten minutes.

        After an identity provider, the right code connects the user; SignInRefused if that is not possible any more.
        """
        user = await self._transactions.read(find_link, token, SECOND_STEP)
        await self._limits.attempt(f"code {user.id}", client.address)
        session = await self._transactions.write(_second_step, self._box, token, code, client)
        await self._limits.succeeded(f"code {user.id}", client.address)
        await self._limits.succeeded(f"email {user.email}", "")
        return session

    async def owner_of_step(self, token: str) -> User:
        """Whose code a second step waits for; InvalidLink."""
        return await self._transactions.read(find_link, token, SECOND_STEP)

    async def owner_of_link(self, token: str) -> User:
        """Whom a link is for, without using it; InvalidLink."""
        return await self._transactions.read(find_link, token, PASSWORD)

    async def link_signs_in(self, token: str) -> bool:
        """Whether a link may be used to sign in without a new password."""
        try:
            await self._transactions.read(find_link, token, SIGN_IN)
        except InvalidLink:
            return False
        return True

    async def with_link(self, token: str, client: Client) -> NewSession | SecondStep:
        """Use a link to sign in; InvalidLink."""
        return await self._transactions.write(_with_link, token, client)

    async def reset_password(self, token: str, password: str, client: Client) -> NewSession | SecondStep:
        """Use a link to set a new password and sign in; all other sessions end. InvalidLink, InvalidValue."""
        user = await self.owner_of_link(token)
        hashed = await self._hashes.hash(checked_password(password, email=user.email))
        return await self._transactions.write(_reset, token, hashed, client)

    async def change_password(self, actor: Actor, current: str, new: str, *, session_id: str) -> None:
        """Set one's own password; all sessions but this one end. SignInFailed if `current` is wrong.

        A user without a password, who came by a link or by OIDC, gives "".
        """
        user = await self.confirm_password(actor, current, may_have_none=True)
        hashed = await self._hashes.hash(checked_password(new, email=user.email))
        await self._transactions.write(_change_password, actor, hashed, session_id)

    async def confirm_password(self, actor: Actor, password: str, *, may_have_none: bool = False) -> User:
        """Ask for the password again before a dangerous action; SignInFailed if it is wrong or there is none."""
        if actor.kind != "user":
            raise Forbidden("Only users have a password of their own")
        await self._limits.attempt(f"password {actor.id}", actor.address)
        row = await self._transactions.read(credentials, users.c.id == actor.id)
        stored = row.password_hash if row is not None else None
        verified = await self._hashes.verify(stored, password)
        if row is None or not (verified.is_right or (may_have_none and stored is None)):
            raise SignInFailed
        await self._limits.succeeded(f"password {actor.id}", actor.address)
        return await self._transactions.read(user_by_id, actor.id)


def credentials(connection: Connection, condition: sa.ColumnElement[bool]) -> Any:
    """A row with id, password_hash and disabled_at, or None."""
    query = sa.select(users.c.id, users.c.password_hash, users.c.disabled_at).where(condition)
    return connection.execute(query).one_or_none()


def _begin(
    connection: Connection, user_id: str, checked: str, new_hash: str | None, client: Client
) -> NewSession | SecondStep:
    """After a right password, unless it was changed or the user was disabled meanwhile."""
    row = credentials(connection, users.c.id == user_id)
    if row is None or row.disabled_at is not None or row.password_hash != checked:
        raise SignInFailed
    if new_hash is not None:
        connection.execute(users.update().where(users.c.id == user_id).values(password_hash=new_hash))
    return session_or_second_step(connection, user_by_id(connection, user_id), client, by="password")


def session_or_second_step(
    connection: Connection, user: User, client: Client, *, by: str, issuer: str = "", arrival: str = ""
) -> NewSession | SecondStep:
    """Begin a session, or ask for the code of a user who has set one up.

    After an identity provider: its issuer, and the text of the `Arrival` that the code completes.
    """
    if user.has_second_factor:
        return SecondStep(insert_link(connection, user.id, "second_factor", arrival=arrival)[0])
    return insert_session(connection, user, address=client.address, user_agent=client.user_agent, by=by, issuer=issuer)


def _second_step(connection: Connection, box: SecretBox, token: str, code: str, client: Client) -> NewSession:
    arrival = arrival_of(connection, token)
    user = use_link(connection, token, SECOND_STEP)
    if not user.has_second_factor:
        raise InvalidLink  # it was removed meanwhile; the person signs in again
    use_code(connection, box, user.id, code)  # a wrong one undoes the use of the link
    issuer = complete(connection, user, arrival, client.address)
    user = user_by_id(connection, user.id)
    agent, by = client.user_agent, "second factor"
    return insert_session(connection, user, address=client.address, user_agent=agent, by=by, issuer=issuer)


def _with_link(connection: Connection, token: str, client: Client) -> NewSession | SecondStep:
    user = use_link(connection, token, SIGN_IN)
    return session_or_second_step(connection, user, client, by="link")


def _reset(connection: Connection, token: str, hashed: str, client: Client) -> NewSession | SecondStep:
    user = use_link(connection, token, PASSWORD)
    _store_password(connection, user.actor(client.address), hashed, keep="")
    return session_or_second_step(connection, user_by_id(connection, user.id), client, by="link")


def _change_password(connection: Connection, actor: Actor, hashed: str, session_id: str) -> None:
    _store_password(connection, actor, hashed, keep=session_id)


def _store_password(connection: Connection, actor: Actor, hashed: str, *, keep: str) -> None:
    values = {"password_hash": hashed, "password_set_at": now()}
    connection.execute(users.update().where(users.c.id == actor.id).values(values))
    ended = delete_sessions(connection, actor.id, keep=keep)
    delete_second_steps(connection, actor.id)  # they followed the old password
    record(connection, actor, "users.password", f"user:{actor.id}", after={"ended_sessions": ended})
