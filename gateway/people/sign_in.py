"""Signing in: by password, by link, and the second step with a code. Each way ends in a session."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor, by_configuration
from gateway.admin.audit_trail import record
from gateway.admin.times import now
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, lock_user, user_by_id
from gateway.admin.values import known_email
from gateway.database.people_tables import audit_events, users
from gateway.errors import Forbidden, InvalidLink, InvalidValue, NotFound, SignInFailed
from gateway.people.arrivals import Completed, complete, is_by_holder, issuer_of_arrival, issuer_of_known
from gateway.people.ended_identities import accounts_given
from gateway.people.known_places import Place
from gateway.people.member_keys import MemberKeys
from gateway.people.memberships import Memberships
from gateway.people.password_hashes import PasswordHashes, checked_password
from gateway.people.proofs import has_been_entered, prove
from gateway.people.second_factor import use_code
from gateway.people.secret_box import SecretBox
from gateway.people.sessions import NewSession, delete_sessions, insert_session
from gateway.people.sign_in_limits import PASSWORD_CHANGES, PASSWORD_CHECKS, SignInLimits
from gateway.people.sign_in_links import (
    PASSWORD,
    SECOND_STEP,
    SIGN_IN,
    arrival_of,
    delete_resets,
    delete_second_steps,
    find_link,
    insert_link,
    purpose_of,
    use_link,
)
from gateway.people.take_over import (
    end_unverified,
    ended_by_password,
    may_be_taken_over,
    take_over,
    take_over_by_address,
)
from gateway.web.turns import Turns

MOST_CHECKS = 16  # passwords of one person who is signed in that are checked or wait for it
CROWDED = "Many forms of yours wait for your password to be checked; wait for some of them"


class Client(Struct, frozen=True):
    """Where a person signs in from, for the list of sessions and the limits."""

    address: str = ""
    user_agent: str = ""
    known_browser: str = ""  # what `SignIn.remember` returned at an earlier sign-in in this browser


class SecondStep(Struct, frozen=True):
    """The password or link was right, and a code is asked for: `SignIn.with_code` takes this token with it."""

    token: str

    def __repr__(self) -> str:
        return "SecondStep(token='***')"


class SignIn:
    """Begins sessions, and sets passwords."""

    def __init__(
        self,
        transactions: Transactions,
        hashes: PasswordHashes,
        limits: SignInLimits,
        box: SecretBox,
        keys: MemberKeys,
        memberships: Memberships,
    ) -> None:
        self._transactions = transactions
        self._hashes = hashes
        self._limits = limits
        self._box = box  # of the second factors
        self._keys = keys
        self._memberships = memberships
        # Of people who are signed in: one of them never takes both threads of the hashes.
        self._turns = Turns(MOST_CHECKS, refusal=CROWDED)

    async def with_password(self, email: str, password: str, client: Client) -> NewSession | SecondStep:
        """SignInFailed for an unknown e-mail, a wrong password and a disabled user alike, after the same time."""
        try:
            email = known_email(email)
        except InvalidValue:
            email = ""
        place = await self.place(email, client)
        await self._limits.attempt_password(place, client.address)
        row = await self._transactions.read(credentials, users.c.email == email)
        stored = row.password_hash if row is not None and row.disabled_at is None else None
        verified = await self._hashes.verify(stored, password, client.address)
        if row is None or not verified.is_right:
            raise SignInFailed
        begun = await self._transactions.write(_begin, row.id, row.password_hash, verified.new_hash, client)
        await self._limits.password_was_right(place, client.address)
        if isinstance(begun, NewSession):  # else when the code was right, too
            await self._limits.signed_in(place)
        return begun

    async def with_code(self, token: str, code: str, client: Client) -> NewSession:
        """The second step; SignInFailed for a wrong code, InvalidLink after ten minutes.

        After an identity provider, the right code connects the user; SignInRefused if that is not possible any more.
        """
        user = await self._transactions.read(find_link, token, SECOND_STEP)
        # Who has the password uses up none of the attempts of a person whom a provider sends.
        counted = f"code {user.id} {issuer_of_arrival(await self._transactions.read(arrival_of, token))}".rstrip()
        await self._limits.attempt(counted, "")
        session, done = await self._transactions.write(_second_step, self._box, token, code, client)
        await self._end_left(user, done, client)
        await self._limits.succeeded(counted, "")
        await self._limits.signed_in(await self.place(user.email, client))
        return session

    async def step_takes_over(self, token: str) -> bool:
        """Whether a person whom a provider sends may go on without the code; InvalidLink.

        Somebody else may have set up the second factor, see `may_be_taken_over`.
        """
        return await self._transactions.read(_step_takes_over, token)

    async def without_code(self, token: str, client: Client) -> NewSession:
        """Take over the user of such a step: all that was set up for the user ends. InvalidLink, SignInRefused."""
        user = await self.owner_of_step(token)
        if not await self.step_takes_over(token):
            raise InvalidLink
        actor = user.actor(client.address)
        change = partial(_take_over_at_step, token=token, client=client)
        session, done = await self._keys.revoke_with(actor, user.id, user.accounts, change)
        await self._end_left(user, done, client)
        return session

    async def _end_left(self, user: User, done: Completed, client: Client) -> None:
        """End the memberships that the claims of a provider do not give any more."""
        await self._memberships.end_left(by_configuration(f"oidc.{done.provider}", client.address), user.id, done.left)

    async def remember(self, user: User, client: Client) -> str:
        """After a sign-in: the value of `Client.known_browser` from now on.

        Wrong passwords from elsewhere do not keep the person out of this browser and this address.
        """
        return await self._limits.remember(user.email, client.address)

    async def place(self, email: str, client: Client) -> Place:
        """Where an attempt of the person with this normalised e-mail comes from."""
        since = await self._transactions.read(known_since, email)
        return await self._limits.place(email, client.address, client.known_browser, since)

    async def owner_of_step(self, token: str) -> User:
        """Whose code a second step waits for; InvalidLink."""
        return await self._transactions.read(find_link, token, SECOND_STEP)

    async def owner_of_link(self, token: str) -> User:
        """Whom a link is for, without using it; InvalidLink."""
        return await self._transactions.read(find_link, token, PASSWORD)

    async def link_signs_in(self, token: str) -> bool:
        """Whether a link may be used to sign in without a new password."""
        try:
            user = await self._transactions.read(find_link, token, SIGN_IN)
        except InvalidLink:
            return False
        return not await self._transactions.read(_may_be_another, user)

    async def link_takes_over(self, token: str) -> bool:
        """Whether a new password by this link ends all by which somebody else may be the user; InvalidLink."""
        return await self._transactions.read(_may_be_another, await self.owner_of_link(token))

    async def link_disconnects(self, token: str) -> bool:
        """Whether a new password by this link ends a connection with a provider and what it gave; InvalidLink."""
        user = await self.owner_of_link(token)
        return bool(await self._transactions.read(ended_by_password, user))

    async def with_link(self, token: str, client: Client) -> NewSession | SecondStep:
        """Use a link to sign in; InvalidLink. InvalidValue for a link that has to set a new password."""
        return await self._transactions.write(_with_link, token, client)

    async def reset_password(self, token: str, password: str, client: Client) -> NewSession | SecondStep:
        """Use a link to set a new password and sign in; all other sessions end. InvalidLink, InvalidValue.

        Of a user whose address is not proved, and as whom somebody has signed in, all else ends too, with their API
        keys: that may have been another person. A link that was sent by e-mail proves the address. Connections whose
        provider has not verified the address end with what they gave, see `ended_by_password`.
        """
        user = await self.owner_of_link(token)
        checked_password(password, email=user.email)
        await self._limits.attempt_link(token, client.address)
        hashed = await self._hashes.hash(password, client.address)
        left, actor = await self._transactions.read(_accounts_that_end, user), user.actor(client.address)
        change = partial(_reset, token=token, hashed=hashed, client=client)
        begun = await self._keys.revoke_with(actor, user.id, left, change)
        await self._limits.link_worked(token, client.address)
        return begun

    async def change_password(self, actor: Actor, current: str, new: str, *, session_id: str) -> None:
        """Set one's own password; all sessions but this one end. SignInFailed if `current` is wrong, SignInLimited.

        A user without a password, who came by a link or by OIDC, gives "".
        """
        _require_user(actor)
        user = await self._transactions.read(user_by_id, actor.id)
        checked_password(new, email=user.email)
        await self._limits.spend(f"password-change {actor.id}", PASSWORD_CHANGES)
        async with self._turns.of(actor.id):
            checked = await self._check_password(actor, current, may_have_none=True)
            hashed = await self._hashes.hash(new, actor.address)
            await self._transactions.write_as(actor, _change_password, checked, hashed, session_id)

    async def confirm_password(self, actor: Actor, password: str) -> None:
        """Ask for the password again before a dangerous action; SignInFailed if it is wrong or there is none.

        SignInLimited after ten wrong ones, and for people without the rights of an operator after 60 right ones.
        TooManyRequests if many checks of the person wait. Forbidden or NotSignedIn if the person has lost rights
        meanwhile: the actions that follow may change the store, which does not ask.
        """
        _require_user(actor)
        if not actor.is_operator:
            await self._limits.spend(f"password-check {actor.id}", PASSWORD_CHECKS)
        async with self._turns.of(actor.id):
            await self._check_password(actor, password)
        await self._transactions.require_current(actor)

    async def _check_password(self, actor: Actor, password: str, *, may_have_none: bool = False) -> str | None:
        """The stored hash that the password was checked with."""
        await self._limits.attempt(f"password {actor.id}", "")
        row = await self._transactions.read(credentials, users.c.id == actor.id)
        stored: str | None = row.password_hash if row is not None else None
        verified = await self._hashes.verify(stored, password, actor.address)
        if row is None or not (verified.is_right or (may_have_none and stored is None)):
            raise SignInFailed
        await self._limits.succeeded(f"password {actor.id}", "")
        return stored


def _require_user(actor: Actor) -> None:
    if actor.kind != "user":
        raise Forbidden("Only users have a password of their own")


def credentials(connection: Connection, condition: sa.ColumnElement[bool]) -> Any:
    """A row with id, password_hash and disabled_at, or None."""
    query = sa.select(users.c.id, users.c.password_hash, users.c.disabled_at).where(condition)
    return connection.execute(query).one_or_none()


def known_since(connection: Connection, email: str) -> int:
    """Since when browsers and addresses are those of the person, in microseconds since 1970; 0 without such a user.

    The password was set then, the address was proved, or the user was taken over: before, it may have been another.
    """
    table = audit_events.c
    taken = sa.and_(table.object == "user:" + users.c.id, table.action == "users.take_over")
    last = sa.select(sa.func.max(table.at)).where(taken).correlate(users).scalar_subquery()
    query = sa.select(users.c.password_set_at, users.c.proved_at, last).where(users.c.email == email)
    row = connection.execute(query).one_or_none()
    return max((int(at or 0) for at in row), default=0) if row is not None else 0


def _begin(
    connection: Connection, user_id: str, checked: str, new_hash: str | None, client: Client
) -> NewSession | SecondStep:
    """After a right password, unless it was changed or the user was disabled meanwhile."""
    with suppress(NotFound):
        lock_user(connection, user_id)  # a new password ends sessions, also those that begin at this moment
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


def _second_step(
    connection: Connection, box: SecretBox, token: str, code: str, client: Client
) -> tuple[NewSession, Completed]:
    arrival = arrival_of(connection, token)
    user = use_link(connection, token, SECOND_STEP)
    if not user.has_second_factor:
        raise InvalidLink  # it was removed meanwhile; the person signs in again
    use_code(connection, box, user.id, code)  # a wrong one undoes the use of the link
    return _completed(connection, user, arrival, client, by="second factor")


def _completed(
    connection: Connection, user: User, arrival: str, client: Client, *, by: str
) -> tuple[NewSession, Completed]:
    done = complete(connection, user, arrival, client.address)
    user, place = user_by_id(connection, user.id), {"address": client.address, "user_agent": client.user_agent}
    return insert_session(connection, user, **place, by=by, issuer=done.issuer), done


def _step_takes_over(connection: Connection, token: str) -> bool:
    user = find_link(connection, token, SECOND_STEP)
    return may_be_taken_over(connection, user) and is_by_holder(connection, user, arrival_of(connection, token))


def _take_over_at_step(connection: Connection, token: str, client: Client) -> tuple[NewSession, Completed]:
    if not _step_takes_over(connection, token):
        raise InvalidLink
    arrival = arrival_of(connection, token)
    user = use_link(connection, token, SECOND_STEP)
    if not may_be_taken_over(connection, user):  # as the lock has found it
        raise InvalidLink
    kept = issuer_of_known(connection, user, arrival)
    take_over_by_address(connection, user.actor(client.address), user, keep_issuer=kept)
    return _completed(connection, user_by_id(connection, user.id), arrival, client, by="take-over")


def _with_link(connection: Connection, token: str, client: Client) -> NewSession | SecondStep:
    user = use_link(connection, token, SIGN_IN)
    if _may_be_another(connection, user):
        raise InvalidValue("Set a new password with this link", param="password")
    return session_or_second_step(connection, user, client, by="link")


def _reset(connection: Connection, token: str, hashed: str, client: Client) -> NewSession | SecondStep:
    by_mail = purpose_of(connection, token) == "reset"
    user = use_link(connection, token, PASSWORD)
    if _may_be_another(connection, user):
        keeps_code = by_mail and not may_be_taken_over(connection, user)  # the mailbox alone does not replace it
        take_over(connection, user.actor(client.address), user, keeps_second_factor=keeps_code)
    else:
        end_unverified(connection, user.actor(client.address), user)
    if by_mail:
        prove(connection, user.actor(client.address), user, "mail")
    _store_password(connection, user.actor(client.address), hashed, keep="")
    return session_or_second_step(connection, user_by_id(connection, user.id), client, by="link")


def _accounts_that_end(connection: Connection, user: User) -> list[str]:
    """The accounts whose API keys of the user end with a new password by a link."""
    if _may_be_another(connection, user):
        return list(user.accounts)
    return accounts_given(connection, user, by=ended_by_password(connection, user))


def _may_be_another(connection: Connection, user: User) -> bool:
    return not user.is_proved and has_been_entered(connection, user)


def _change_password(connection: Connection, actor: Actor, checked: str | None, hashed: str, session_id: str) -> None:
    lock_user(connection, actor.id)
    row = credentials(connection, users.c.id == actor.id)
    if row.password_hash != checked:
        raise SignInFailed  # it was changed meanwhile, or the user was taken over
    _store_password(connection, actor, hashed, keep=session_id)


def _store_password(connection: Connection, actor: Actor, hashed: str, *, keep: str) -> None:
    values = {"password_hash": hashed, "password_set_at": now()}
    connection.execute(users.update().where(users.c.id == actor.id).values(values))
    ended = delete_sessions(connection, actor.id, keep=keep)
    delete_second_steps(connection, actor.id)  # they followed the old password
    delete_resets(connection, actor.id)
    record(connection, actor, "users.password", f"user:{actor.id}", after={"ended_sessions": ended})
