"""The end of connections with identity providers. What claims gave by a connection ends with it.

Nothing else would take it back: what was given is remembered with the connection. What another provider gives, too,
comes back with the next sign-in there.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import structs
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import record
from gateway.admin.granted import Granted, granted_to, highest, remember
from gateway.admin.user_rows import User, has_operator, lock_user_and_operators, user_by_id
from gateway.database.people_tables import identities, users
from gateway.errors import LastOperator
from gateway.people.made_by import end_made_by, forget_maker_issuer
from gateway.people.memberships import end_membership, put_membership


def accounts_given(connection: Connection, user: User, *, by: Iterable[str] | None = None) -> list[str]:
    """The accounts that the user leaves when connections end: all of them, or those with the issuers `by`.

    LastOperator, as the end itself.
    """
    given = granted_to(connection, user.id)
    chosen = given if by is None else {issuer: given[issuer] for issuer in by if issuer in given}
    if kept_for_operator(connection, user, chosen):
        raise LastOperator
    return sorted(
        {account for one in chosen.values() for account in _accounts_of(user, one) if account not in one.over}
    )


def kept_for_operator(connection: Connection, user: User, issuers: Iterable[str]) -> set[str]:
    """Those of these connections that cannot end: only their claims give the role of the last operator."""
    given = granted_to(connection, user.id)
    giving = {issuer for issuer, one in given.items() if user.role == "operator" and _gave_role(user, one)}
    if not giving or not giving <= set(issuers) or user.disabled is not None:
        return set()
    return set() if has_operator(connection, but=user.id) else giving


def remove_identities(connection: Connection, actor: Actor, user: User, issuers: Iterable[str]) -> list[str]:
    """End these connections of a user and take back what they gave; returns the issuers that were connected.

    LastOperator if the role cannot be taken back, because it is that of the last operator. The caller has locked the
    user, writes the event of the end, and revokes the keys of `accounts_given`.
    """
    known = granted_to(connection, user.id)
    ended = sorted(known.keys() & set(issuers))
    for issuer in ended:
        table = identities.c
        connection.execute(identities.delete().where(table.user_id == user.id, table.issuer == issuer))
        forget_maker_issuer(connection, user.id, issuer)
        _take_back(connection, actor, user_by_id(connection, user.id), known[issuer])
    return ended


def hand_over_grants(connection: Connection, user_id: str, issuer: str, others: Iterable[str]) -> None:
    """Remember the memberships that other providers gave with this connection, whose claims then take them back.

    It is for connections that end at a sign-in: `apply_grants` follows, and ends memberships with their keys. The role
    on the site ends with the connections, and with it the tokens that somebody else may have made.
    """
    given = granted_to(connection, user_id)
    handed = {other: given[other] for other in others if other in given and given[other].accounts}
    if handed:
        accounts = highest([*handed.values(), given[issuer]]).accounts
        over = {name: role for one in (*handed.values(), given[issuer]) for name, role in one.over.items() if name}
        kept = {other: structs.replace(one, accounts={}) for other, one in handed.items()}
        own = structs.replace(given[issuer], accounts=accounts, over=given[issuer].over | over)
        remember(connection, user_id, kept | {issuer: own})


def _accounts_of(user: User, given: Granted) -> list[str]:
    """Where the user has the role that was given, and not another one that a person gave."""
    return [account for account, role in given.accounts.items() if user.accounts.get(account) == role]


def _take_back(connection: Connection, actor: Actor, user: User, given: Granted) -> None:
    for account in _accounts_of(user, given):
        if account in given.over:
            put_membership(connection, actor, user, account, given.over[account], given_by="owner")
        else:
            end_membership(connection, actor, user, account)
    if _gave_role(user, given):
        _take_role(connection, actor, user, given.over.get("", "none"))


def _gave_role(user: User, given: Granted) -> bool:
    return user.role != "none" and given.site_role == user.role


def _take_role(connection: Connection, actor: Actor, user: User, before: str) -> None:
    """`before`: the role that a person had given, which comes back."""
    user, is_last = lock_user_and_operators(connection, user.id)
    if is_last and any(_gave_role(user, one) for one in granted_to(connection, user.id).values()):
        end_made_by(connection, actor, f"user:{user.id}")  # the role counts where the others come
        return
    if is_last:
        raise LastOperator
    connection.execute(users.update().where(users.c.id == user.id).values(role=before))
    end_made_by(connection, actor, f"user:{user.id}")
    sides = {"before": {"role": user.role}, "after": {"role": before}}
    record(connection, actor, "users.edit", f"user:{user.id}", **sides)
