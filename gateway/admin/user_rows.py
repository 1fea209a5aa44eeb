"""Users as the services see them, and the rows behind them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from msgspec import Struct
from sqlalchemy.engine import Connection

from gateway.admin.actor import SITE_SCOPES, Actor
from gateway.admin.times import from_micros, from_micros_or_none, time_text
from gateway.admin.values import known_email
from gateway.database.people_tables import memberships, users
from gateway.errors import AddressChanged, Forbidden, NotFound


class User(Struct, frozen=True, kw_only=True):
    """A person, without secrets."""

    id: str
    email: str
    name: str
    role: str  # operator, viewer, none
    state: str  # active, disabled
    proved: str  # by what the address is proved: mail, provider, operator; no
    has_password: bool
    has_second_factor: bool
    accounts: dict[str, str]  # roles by account: all, or as far as `Roles` says
    created: datetime
    disabled: datetime | None
    has_all_accounts: bool = True  # in `accounts`; else what the user may do elsewhere is not known

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway users show`."""
        form = {name: getattr(self, name) for name in self.__struct_fields__ if name != "has_all_accounts"}
        return form | {"created": time_text(self.created), "disabled": time_text(self.disabled)}

    @property
    def is_proved(self) -> bool:
        """Whether the holder of the address is known to be the user."""
        return self.proved != "no"

    def actor(self, address: str, session: str = "") -> Actor:
        """The user as one who acts, by the session with this id if it is a person who is signed in."""
        return Actor(
            kind="user",
            id=self.id,
            scopes=SITE_SCOPES[self.role],
            memberships=self.accounts,
            address=address,
            session=session,
        )


class Roles(Struct, frozen=True):
    """Which memberships of a user are read: those in `accounts`, and the first ones by name.

    A page costs the same for a person in ten accounts and in ten thousand.
    """

    accounts: Collection[str] = ()
    first: int = 0


def user_of(connection: Connection, condition: sa.ColumnElement[bool], roles: Roles | None = None) -> User | None:
    """The user who meets the condition, with these memberships or all, or None."""
    found = users_of(connection, sa.select(users).where(condition).limit(1), roles=roles)
    return found[0] if found else None


_BY_ID = sa.select(users).where(users.c.id == sa.bindparam("id"))  # made once: it is asked for each page


def user_by_id(connection: Connection, user_id: str, roles: Roles | None = None) -> User:
    """The user of this id, with these memberships or all; NotFound if there is none."""
    found = users_of(connection, _BY_ID, {"id": user_id}, roles=roles)
    if not found:
        raise NotFound("There is no such user")
    return found[0]


def lock_user(connection: Connection, user_id: str) -> User:
    """`user_by_id`, and no other transaction that locks the user changes their rights until this one has ended.

    PostgreSQL locks the row; SQLite has one writer. Call it before rows that belong to the user are inserted, changed
    or removed: transactions that lock the user first do not wait for each other in a circle.
    """
    query = sa.select(users.c.id).where(users.c.id == user_id).with_for_update(key_share=True)
    connection.execute(query)
    return user_by_id(connection, user_id)


def require_address(user: User, expected: str) -> None:
    """AddressChanged if somebody has given the user another e-mail than the expected one; "" expects none.

    Who gives something to a user has chosen a person by this address. The caller has locked the user.
    """
    if expected and expected != user.email and known_email(expected) != user.email:
        raise AddressChanged


def users_of(
    connection: Connection,
    query: sa.Select[Any],
    values: Mapping[str, Any] | None = None,
    *,
    roles: Roles | None = None,
) -> list[User]:
    """The users of a query of all their columns, with these memberships or all; `values` of its parameters."""
    rows = connection.execute(query, values).all()
    ids = [row.id for row in rows]
    found = _memberships(connection, ids) if roles is None else _some_memberships(connection, ids, roles)
    return [_user(row, found.get(row.id, {}), has_all=roles is None) for row in rows]


def require_power_over(actor: Actor, user: User) -> None:
    """Forbidden unless the actor may change this user: only an operator may change operators and viewers."""
    actor.require("users")
    if user.role != "none" and not actor.is_operator:
        raise Forbidden("This needs an operator, because the user has a role on the site")


def require_reader_of(connection: Connection, actor: Actor, user_id: str) -> None:
    """Forbidden unless the actor may read where and how the user signs in.

    That are the user, who may read everything, and with the scope `users` who may also change the user.
    """
    if (actor.kind, actor.id) == ("user", user_id):
        return
    actor.require_read("users")
    if not actor.may("read"):
        require_power_over(actor, user_by_id(connection, user_id))


def lock_operators(connection: Connection) -> set[str]:
    """The ids of the operators who are not disabled, locked until the transaction ends. SQLite has one writer."""
    condition = sa.and_(users.c.role == "operator", users.c.disabled_at.is_(None))
    query = sa.select(users.c.id).where(condition).order_by(users.c.id).with_for_update()
    return set(connection.scalars(query))


def named(text: str) -> sa.ColumnElement[bool]:
    """Whether the e-mail or the name of a user has this text."""
    return sa.or_(*(column.icontains(text, autoescape=True) for column in (users.c.email, users.c.name)))


def has_operator(connection: Connection, *, but: str = "") -> bool:
    """Whether there is an operator who is not disabled, beside the user of this id."""
    condition = sa.and_(users.c.role == "operator", users.c.disabled_at.is_(None), users.c.id != but)
    return connection.scalar(sa.select(users.c.id).where(condition).limit(1)) is not None


def lock_user_and_operators(connection: Connection, user_id: str) -> tuple[User, bool]:
    """`lock_user` after the operators, as all do who lock both; and whether no other operator is known to be left.

    Those who become operators while this waits are not among the locked ones, and are not counted as others.
    """
    others = lock_operators(connection) - {user_id}
    user = lock_user(connection, user_id)
    return user, user.role == "operator" and user.disabled is None and not others


_of = memberships.c
_MEMBERSHIPS = (
    sa.select(_of.user_id, _of.account, _of.role)
    .where(_of.user_id.in_(sa.bindparam("ids", expanding=True)))
    .order_by(_of.account)
)


def _memberships(connection: Connection, ids: Sequence[str]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for start in range(0, len(ids), 500):
        for user_id, account, role in connection.execute(_MEMBERSHIPS, {"ids": list(ids[start : start + 500])}):
            found.setdefault(user_id, {})[account] = role
    return found


_IN_ACCOUNTS = _MEMBERSHIPS.where(_of.account.in_(sa.bindparam("accounts", expanding=True)))
_FIRST = (
    sa.select(_of.account, _of.role)
    .where(_of.user_id == sa.bindparam("id"))
    .order_by(_of.account)
    .limit(sa.bindparam("first"))
)


def _some_memberships(connection: Connection, ids: Sequence[str], roles: Roles) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for user_id in ids if roles.first else ():
        rows = connection.execute(_FIRST, {"id": user_id, "first": roles.first})
        found[user_id] = {row.account: row.role for row in rows}
    for start in range(0, len(ids) if roles.accounts else 0, 500):
        values = {"ids": list(ids[start : start + 500]), "accounts": list(roles.accounts)}
        for user_id, account, role in connection.execute(_IN_ACCOUNTS, values):
            found.setdefault(user_id, {})[account] = role
    return found


def _user(row: sa.Row[Any], accounts: dict[str, str], *, has_all: bool) -> User:
    return User(
        id=row.id,
        email=row.email,
        name=row.name,
        role=row.role,
        state="active" if row.disabled_at is None else "disabled",
        proved=row.proved_by or "no",
        has_password=row.password_hash is not None,
        has_second_factor=row.totp_secret is not None,
        accounts=accounts,
        created=from_micros(row.created_at),
        disabled=from_micros_or_none(row.disabled_at),
        has_all_accounts=has_all,
    )
