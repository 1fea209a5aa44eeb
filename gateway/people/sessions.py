"""Sessions: who is signed in. The token has 256 bits and is stored as a hash."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, json, structs
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.granted import entered_by
from gateway.admin.times import MICROSECOND, from_micros, now, time_text, to_micros
from gateway.admin.transactions import Transactions
from gateway.admin.user_rows import Roles, User, require_power_over, require_reader_of, user_by_id
from gateway.database.people_tables import audit_events, sessions
from gateway.errors import NotFound, NotSignedIn, SignInLimited
from gateway.people.random_ids import new_id, new_token, token_hash

LIFETIME = timedelta(days=30) // MICROSECOND
IDLE = timedelta(days=7) // MICROSECOND  # a session that is not used for so long ends
NOTED_EVERY = (
    timedelta(minutes=1) // MICROSECOND
)  # `last_seen` is no more precise, so that reading a page writes nothing
#: Of one user and one way in: by one identity provider, or without one. Who has another way keeps nobody out.
MOST = 50  # the oldest end
MOST_STARTS = 60  # in `STARTS_WITHIN`, but for those that links start, which work once
STARTS_WITHIN = timedelta(minutes=15) // MICROSECOND
MAX_AGENT = 300  # characters
AT_ONCE = 1000  # ended sessions that a sign-in removes


class UserSession(Struct, frozen=True):
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
    """A new session with its token, for the cookie; the user has the roles that count in it."""

    token: str
    session: UserSession
    user: User

    def __repr__(self) -> str:
        return f"NewSession(token='***', session={self.session.id!r}, user={self.user.id!r})"


class SignedIn(Struct, frozen=True):
    """The session of a request, its user with the roles that count in it, and the user as one who acts."""

    session: UserSession
    user: User
    actor: Actor


class Sessions:
    """Checks, lists and ends sessions; `gateway.people.sign_in` begins them."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def authenticate(self, token: str, *, address: str = "", roles: Roles | None = None) -> SignedIn:
        """The user of a session's token, with these memberships or all.

        NotSignedIn if the session ended, expired or was not used for 7 days.
        """
        found = await self._transactions.read(_find, token, roles)
        if found is None:
            raise NotSignedIn
        session, user = found
        if now() - to_micros(session.last_seen) > NOTED_EVERY:
            await self._transactions.write(_note_seen, session.id)
        return SignedIn(session, user, user.actor(address, session.id))

    async def list(self, actor: Actor, user_id: str) -> list[UserSession]:
        """The sessions of a user, newest first: one's own, or those that `require_reader_of` lets the actor read."""
        return await self._transactions.read(_list, actor, user_id)

    async def end(self, actor: Actor, session_id: str) -> None:
        """End a session at once; NotFound for one that the actor may not see, too."""
        await self._transactions.write_as(actor, _end, session_id)

    async def end_all(self, actor: Actor, user_id: str, *, keep: str = "") -> int:
        """End a user's sessions but the one with the id `keep`; returns how many."""
        return await self._transactions.write_as(actor, _end_all, user_id, keep)


def insert_session(
    connection: Connection, user: User, *, address: str, user_agent: str, by: str, issuer: str = ""
) -> NewSession:
    """Begin a session, with its event; sessions that ended and the user's oldest beyond 50 of this way are removed.

    `issuer` is that of the identity provider of the sign-in: the session ends with the connection, and what claims of
    other providers gave does not count in it. SignInLimited for a user who began many of late: the event of each stays
    for good.
    """
    at, token = now(), new_token()
    if by != "link":
        _check_starts(connection, user.id, issuer, at)
    _remove_ended(connection, user.id, issuer, at)
    session = UserSession(
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
    after = {"by": by, "issuer": issuer} if issuer else {"by": by}
    record(connection, user.actor(address), "sessions.start", f"user:{user.id}", after=after)
    return NewSession(token, session, entered_by(connection, user, issuer))


def sessions_of(connection: Connection, user_id: str) -> list[UserSession]:
    """The sessions of a user that are valid, newest first."""
    query = sa.select(sessions).where(sessions.c.user_id == user_id, _is_valid()).order_by(sessions.c.created_at.desc())
    return [_session(row) for row in connection.execute(query)]


def delete_sessions(connection: Connection, user_id: str, *, keep: str = "", issuer: str = "") -> int:
    """End a user's sessions but one, without an event; returns how many. `issuer`: only those of this provider."""
    condition = sa.and_(sessions.c.user_id == user_id, sessions.c.id != keep)
    if issuer:
        condition = sa.and_(condition, sessions.c.issuer == issuer)
    return connection.execute(sessions.delete().where(condition)).rowcount


def end_sessions_of_others(connection: Connection, user_id: str, issuers: Collection[str], *, keep: str) -> int:
    """End a user's sessions but one that did not begin by these providers, without an event; returns how many."""
    table = sessions.c
    others = sa.and_(table.user_id == user_id, table.id != keep, table.issuer.not_in(list(issuers)))
    return connection.execute(sessions.delete().where(others)).rowcount


def forget_issuer(connection: Connection, user_id: str, issuer: str) -> None:
    """Note that the connection has ended by which a user's sessions began that are kept."""
    began = sa.and_(sessions.c.user_id == user_id, sessions.c.issuer == issuer)
    connection.execute(sessions.update().where(began).values(issuer=""))


_BY_HASH = sa.select(sessions).where(  # made once: it is asked for each page
    sessions.c.token_hash == sa.bindparam("hash"),
    sessions.c.expires_at > sa.bindparam("expires_after"),
    sessions.c.last_seen_at > sa.bindparam("seen_after"),
)


def _find(connection: Connection, token: str, roles: Roles | None) -> tuple[UserSession, User] | None:
    at = now()
    values = {"hash": token_hash(token), "expires_after": at, "seen_after": at - IDLE}
    row = connection.execute(_BY_HASH, values).one_or_none()
    if row is None:
        return None
    user = entered_by(connection, user_by_id(connection, row.user_id, roles), row.issuer)
    return None if user.disabled is not None else (_session(row), user)


def _check_starts(connection: Connection, user_id: str, issuer: str, at: int) -> None:
    table = audit_events.c
    taken = sa.select(sa.func.max(table.at)).where(table.object == f"user:{user_id}", table.action == "users.take_over")
    has_issuer = table.after.contains(f'"issuer":{json.encode(issuer).decode() if issuer else ""}', autoescape=True)
    started = sa.and_(
        table.object == f"user:{user_id}",
        table.action == "sessions.start",
        table.at > at - STARTS_WITHIN,
        table.at >= sa.func.coalesce(taken.scalar_subquery(), 0),  # before, it was another person
        has_issuer if issuer else sa.not_(has_issuer),
    )
    newest_first = sa.select(table.at).where(started).order_by(table.at.desc())
    first = connection.scalar(newest_first.offset(MOST_STARTS - 1).limit(1))
    if first is not None:
        ends = (first + STARTS_WITHIN - at) / 1_000_000
        raise SignInLimited("You have signed in many times in a short time; try again later", retry_after=ends)


def _is_valid() -> sa.ColumnElement[bool]:
    at = now()
    return sa.and_(sessions.c.expires_at > at, sessions.c.last_seen_at > at - IDLE)


def _list(connection: Connection, actor: Actor, user_id: str) -> list[UserSession]:
    require_reader_of(connection, actor, user_id)
    return sessions_of(connection, user_id)


def _note_seen(connection: Connection, session_id: str) -> None:
    connection.execute(sessions.update().where(sessions.c.id == session_id).values(last_seen_at=now()))


def _remove_ended(connection: Connection, user_id: str, issuer: str, at: int) -> None:
    table = sessions.c
    expired = sa.select(table.id).where(table.expires_at < at).order_by(table.expires_at).limit(AT_ONCE)
    same_way = sa.and_(table.user_id == user_id, table.issuer == issuer)
    own = sa.select(table.id).where(same_way).order_by(table.created_at.desc()).offset(MOST - 1)
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


def _session(row: sa.Row[Any]) -> UserSession:
    created, seen, expires = map(from_micros, (row.created_at, row.last_seen_at, row.expires_at))
    return UserSession(row.id, row.user_id, created, seen, expires, row.address, row.user_agent)
