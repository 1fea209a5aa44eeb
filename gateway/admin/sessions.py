"""Sessions: who is signed in. The token has 256 bits and is stored as a hash."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.random_ids import new_id, new_token, token_hash
from gateway.admin.times import MICROSECOND, from_micros, time_text, to_micros
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import User, require_power_over, user_by_id
from gateway.admin.users import now
from gateway.database.people_tables import sessions
from gateway.errors import NotFound, NotSignedIn

LIFETIME = timedelta(days=30) // MICROSECOND
IDLE = timedelta(days=7) // MICROSECOND  # a session that is not used for so long ends
NOTED_EVERY = (
    timedelta(minutes=1) // MICROSECOND
)  # `last_seen` is no more precise, so that reading a page writes nothing
MOST = 50  # of one user; the oldest end
MAX_AGENT = 300  # characters
AT_ONCE = 1000  # ended sessions that a sign-in removes


class Session(Struct, frozen=True):
    """One session, without its token."""

    id: str
    user_id: str
    created: datetime
    last_seen: datetime
    expires: datetime
    address: str
    user_agent: str

    def json_form(self) -> dict[str, Any]:
        """The JSON document of a session."""
        form = structs.asdict(self)
        return form | {name: time_text(form[name]) for name in ("created", "last_seen", "expires")}


class NewSession(Struct, frozen=True):
    """A new session with its token, for the cookie."""

    token: str
    session: Session
    user: User

    def __repr__(self) -> str:
        return f"NewSession(token='***', session={self.session.id!r}, user={self.user.id!r})"


class SignedIn(Struct, frozen=True):
    """The session of a request, its user, and the user as one who acts."""

    session: Session
    user: User
    actor: Actor


class Sessions:
    """Checks, lists and ends sessions; `gateway.admin.sign_in` begins them."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def authenticate(self, token: str, *, address: str = "") -> SignedIn:
        """The user of a session's token; NotSignedIn if it ended, expired or was not used for 7 days."""
        found = await self._transactions.read(_find, token)
        if found is None:
            raise NotSignedIn
        session, user = found
        if now() - to_micros(session.last_seen) > NOTED_EVERY:
            await self._transactions.write(_note_seen, session.id)
        return SignedIn(session, user, user.actor(address))

    async def list(self, actor: Actor, user_id: str) -> list[Session]:
        """The sessions of a user, newest first; one's own, or with the scope `read` or `users` anybody's."""
        if not _is_self(actor, user_id):
            actor.require_read("users")
        return await self._transactions.read(sessions_of, user_id)

    async def end(self, actor: Actor, session_id: str) -> None:
        """End a session at once; NotFound for one that the actor may not see, too."""
        await self._transactions.write(_end, actor, session_id)

    async def end_all(self, actor: Actor, user_id: str, *, keep: str = "") -> int:
        """End a user's sessions but the one with the id `keep`; returns how many."""
        return await self._transactions.write(_end_all, actor, user_id, keep)


def insert_session(
    connection: Connection, user: User, *, address: str, user_agent: str, by: str, issuer: str = ""
) -> NewSession:
    """Begin a session, with its event; sessions that ended and the user's oldest beyond 50 are removed.

    `issuer` is that of the identity provider of the sign-in: the session ends with the connection.
    """
    at, token = now(), new_token()
    _remove_ended(connection, user.id, at)
    session = Session(
        new_id("ses"),
        user.id,
        from_micros(at),
        from_micros(at),
        from_micros(at + LIFETIME),
        address,
        "".join(filter(str.isprintable, user_agent))[:MAX_AGENT],
    )
    row = {"id": session.id, "token_hash": token_hash(token), "user_id": user.id, "user_agent": session.user_agent}
    times = {"created_at": at, "last_seen_at": at, "expires_at": at + LIFETIME}
    connection.execute(sessions.insert().values(row | times | {"address": address, "issuer": issuer}))
    record(connection, user.actor(address), "sessions.start", f"user:{user.id}", after={"by": by})
    return NewSession(token, session, user)


def sessions_of(connection: Connection, user_id: str) -> list[Session]:
    """The sessions of a user that are valid, newest first."""
    query = sa.select(sessions).where(sessions.c.user_id == user_id, _is_valid()).order_by(sessions.c.created_at.desc())
    return [_session(row) for row in connection.execute(query)]


def delete_sessions(connection: Connection, user_id: str, *, keep: str = "", issuer: str = "") -> int:
    """End a user's sessions but one, without an event; returns how many. `issuer`: only those of this provider."""
    condition = sa.and_(sessions.c.user_id == user_id, sessions.c.id != keep)
    if issuer:
        condition = sa.and_(condition, sessions.c.issuer == issuer)
    return connection.execute(sessions.delete().where(condition)).rowcount


_BY_HASH = sa.select(sessions).where(  # made once: it is asked for each page
    sessions.c.token_hash == sa.bindparam("hash"),
    sessions.c.expires_at > sa.bindparam("expires_after"),
    sessions.c.last_seen_at > sa.bindparam("seen_after"),
)


def _find(connection: Connection, token: str) -> tuple[Session, User] | None:
    at = now()
    values = {"hash": token_hash(token), "expires_after": at, "seen_after": at - IDLE}
    row = connection.execute(_BY_HASH, values).one_or_none()
    if row is None:
        return None
    user = user_by_id(connection, row.user_id)
    return None if user.disabled is not None else (_session(row), user)


def _is_valid() -> sa.ColumnElement[bool]:
    at = now()
    return sa.and_(sessions.c.expires_at > at, sessions.c.last_seen_at > at - IDLE)


def _note_seen(connection: Connection, session_id: str) -> None:
    connection.execute(sessions.update().where(sessions.c.id == session_id).values(last_seen_at=now()))


def _remove_ended(connection: Connection, user_id: str, at: int) -> None:
    table = sessions.c
    expired = sa.select(table.id).where(table.expires_at < at).order_by(table.expires_at).limit(AT_ONCE)
    own = sa.select(table.id).where(table.user_id == user_id).order_by(table.created_at.desc()).offset(MOST - 1)
    ids = [*connection.scalars(expired), *connection.scalars(own.limit(AT_ONCE))]
    if ids:
        connection.execute(sessions.delete().where(table.id.in_(ids)))


def _end(connection: Connection, actor: Actor, session_id: str) -> None:
    user_id = connection.scalar(sa.select(sessions.c.user_id).where(sessions.c.id == session_id))
    if user_id is None or not (_is_self(actor, user_id) or actor.may("users")):
        raise NotFound("There is no such session")
    if not _is_self(actor, user_id):
        require_power_over(actor, user_by_id(connection, user_id))
    connection.execute(sessions.delete().where(sessions.c.id == session_id))
    record(connection, actor, "sessions.end", f"user:{user_id}", before={"session": session_id})


def _end_all(connection: Connection, actor: Actor, user_id: str, keep: str) -> int:
    if not _is_self(actor, user_id):
        require_power_over(actor, user_by_id(connection, user_id))
    ended = delete_sessions(connection, user_id, keep=keep)
    if ended:
        record(connection, actor, "sessions.end", f"user:{user_id}", before={"sessions": ended})
    return ended


def _is_self(actor: Actor, user_id: str) -> bool:
    return actor.kind == "user" and actor.id == user_id


def _session(row: sa.Row[Any]) -> Session:
    created, seen, expires = map(from_micros, (row.created_at, row.last_seen_at, row.expires_at))
    return Session(row.id, row.user_id, created, seen, expires, row.address, row.user_agent)
