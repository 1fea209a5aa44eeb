"""What a provider gave to a user. It is remembered with the connection, so that it can be taken back.

A role that claims gave counts only in sessions that began with this provider. Another person may have the password,
a link or another connection of the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.admin.actor import ROLE_RANKS as RANKS
from gateway.admin.user_rows import User
from gateway.database.people_tables import identities


class Granted(Struct, frozen=True):
    """Roles by account, and the role on the site or "".

    `ending`: accounts that claims do not give any more, until the membership has ended. Their roles count nowhere.
    `over`: roles that a person had given, and that claims have raised, by account and with "" for the site. They come
    back with the end of the claims.
    `claimed`: what the claims said of accounts the last time; it is remembered when a person ends or changes the role.
    """

    accounts: dict[str, str] = {}
    site_role: str = ""
    ending: list[str] = []
    over: dict[str, str] = {}
    claimed: dict[str, str] = {}

    @property
    def is_something(self) -> bool:
        """Whether anything is given."""
        return bool(self.accounts or self.site_role)


def highest(parts: Iterable[Granted]) -> Granted:
    """The highest roles of several."""
    accounts, site_role = dict[str, str](), ""
    for part in parts:
        for account, role in part.accounts.items():
            accounts[account] = max(accounts.get(account, ""), role, key=RANKS.__getitem__)
        site_role = max(site_role, part.site_role, key=RANKS.__getitem__)
    return Granted(accounts, site_role)


_BY_USER = (  # made once: it is asked for each page
    sa.select(identities.c.issuer, identities.c.granted)
    .where(identities.c.user_id == sa.bindparam("user"))
    .order_by(identities.c.created_at)
)


def granted_to(connection: Connection, user_id: str) -> dict[str, Granted]:
    """What the providers of a user gave, by issuer, those first that were connected first."""
    rows = connection.execute(_BY_USER, {"user": user_id})
    return {row.issuer: msgspec.json.decode(row.granted, type=Granted) for row in rows}


def entered_by(connection: Connection, user: User, issuer: str) -> User:
    """The user with the roles that count in a session that began by the provider `issuer`, or with "" in another way.

    Those are the roles that people gave, and what claims of this provider gave.
    """
    given = granted_to(connection, user.id)
    own = given.get(issuer, Granted())
    accounts = dict[str, str]()
    for account, role in user.accounts.items():
        all_given = [one.accounts.get(account, "") for one in given.values()]
        own_role = "" if account in own.ending else own.accounts.get(account, "")
        if counts := _counting(role, all_given, own_role):
            accounts[account] = counts
    role = _counting(user.role, [one.site_role for one in given.values()], own.site_role) or "none"
    return structs.replace(user, role=role, accounts=accounts)


def given_by(connection: Connection, user: User, *, account: str = "") -> list[str]:
    """The issuers whose claims give the role that the user has in an account, or with "" on the site: nobody else does.

    Empty for a role that a person gave, and for none.
    """
    role = user.accounts.get(account, "none") if account else user.role
    given = granted_to(connection, user.id)
    roles = {issuer: one.accounts.get(account) if account else one.site_role for issuer, one in given.items()}
    return sorted(issuer for issuer, one in roles.items() if one == role != "none")


def forget_granted(connection: Connection, user_id: str, *, account: str = "") -> None:
    """Forget what claims gave in an account, or with "" on the site: the membership ends, or the role is a person's."""
    for issuer, one in granted_to(connection, user_id).items():
        over = {name: role for name, role in one.over.items() if name != account}
        if account:
            accounts = {name: role for name, role in one.accounts.items() if name != account}
            ending = [name for name in one.ending if name != account]
            claimed = {name: role for name, role in one.accounts.items() if name == account} | one.claimed
            kept = structs.replace(one, accounts=accounts, ending=ending, over=over, claimed=claimed)
        else:
            kept = structs.replace(one, site_role="", over=over)
        if kept != one:
            remember(connection, user_id, {issuer: kept})


def remember(connection: Connection, user_id: str, given: Mapping[str, Granted]) -> None:
    """Remember what the providers gave, by issuer."""
    table = identities.c
    for issuer, one in given.items():
        values = {"granted": msgspec.json.encode(one).decode()}
        connection.execute(identities.update().where(table.user_id == user_id, table.issuer == issuer).values(values))


def _counting(role: str, given: list[str], own: str) -> str:
    """A role that people gave, or what of it the own provider gave; "" for nothing."""
    return min(role, own, key=RANKS.__getitem__) if role in given else role
