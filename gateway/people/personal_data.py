"""What is stored about a person: exported for them, and erased.

Erasing removes the user with everything that names or describes the person. What stays is the opaque user id in the
audit trail and in ledger lines, which then leads to nobody.

Roles that claims gave count in the sessions of their provider only. In another session of the user, who may be somebody
else than the person of the provider, the export has only what belongs to the roles that count there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from gateway.admin.actor import Actor
from gateway.admin.audit_trail import event_of, record
from gateway.admin.current_rights import issuer_of
from gateway.admin.granted import entered_by
from gateway.admin.key_lookups import used_from_form
from gateway.admin.times import from_micros, from_micros_or_none, time_text
from gateway.admin.transactions import Transactions, as_current
from gateway.admin.user_rows import User, lock_user_and_operators, require_power_over, user_by_id
from gateway.amounts import format_amount
from gateway.database.people_tables import (
    audit_events,
    identities,
    invitations,
    memberships,
    sign_in_links,
    sign_ups,
    users,
)
from gateway.database.tables import usage_daily
from gateway.errors import Forbidden, LastOperator
from gateway.history.caller_addresses import addresses_of_keys, forget_addresses, keys_used_by
from gateway.people.invitation_rows import invitations_of
from gateway.people.member_keys import MemberKeys
from gateway.people.sessions import sessions_of
from gateway.people.tokens import tokens_by
from gateway.people.users import end_access

LEFT_OUT = (
    "what belongs to the roles that count when you sign in by a sign-in service; export there, or ask an operator"
)


class PersonalData:
    """Export and erasure, by an operator or by the person. `long_reads` are transactions of long queries."""

    def __init__(self, transactions: Transactions, keys: MemberKeys, long_reads: Transactions) -> None:
        self._transactions = transactions
        self._keys = keys
        self._long_reads = long_reads

    async def export(self, actor: Actor, user_id: str) -> dict[str, Any]:
        """Everything that is stored about a user, as a JSON document; secrets are named, not shown.

        For the person in a session without roles that claims gave: `left_out` says what is not in the document.
        Forbidden, NotFound. The event is written after the reading, and nothing is given out without it.
        """
        if not (actor.kind == "user" and actor.id == user_id):
            actor.require("users")
        document, accounts = await self._long_reads.read(_export, actor, user_id)
        keys = await self._keys.list(actor, user_id)
        await self._transactions.write_as(actor, _record_export, user_id)
        return document | {"keys": [key.json_form() for key in keys if accounts is None or key.account in accounts]}

    async def erase(self, actor: Actor, user_id: str) -> None:
        """Erase a user for good, and revoke their keys; LastOperator, NotFound."""
        actor.require("users")
        user = await self._transactions.write_as(actor, _erasable, user_id)
        change = as_current(actor, _erase, user_id)
        await self._keys.revoke_with(actor, user_id, user.accounts, change, ended=list)


def _export(connection: Connection, actor: Actor, user_id: str) -> tuple[dict[str, Any], Collection[str] | None]:
    """The document without keys, and the accounts that it is restricted to, or None."""
    user = _exported(connection, actor, user_id)
    document = _document(connection, actor, user)
    counting = entered_by(connection, user, issuer_of(connection, actor)) if actor.id == user.id else user
    if (counting.role, counting.accounts) == (user.role, user.accounts):
        return document, None
    return document | _counting_part(connection, document, user, counting), counting.accounts


def _counting_part(connection: Connection, document: dict[str, Any], user: User, counting: User) -> dict[str, Any]:
    """What of the document belongs to the roles `counting`, instead of all."""
    accounts, has_role = counting.accounts, counting.role == user.role != "none"
    usage = [row for row in document["usage"] if row["account"] in accounts]
    used = addresses_of_keys(connection, {row["key"] for row in usage})
    return {
        "user": document["user"] | {"role": counting.role, "accounts": accounts},
        "memberships": [
            row | {"role": accounts[row["account"]]} for row in document["memberships"] if row["account"] in accounts
        ],
        "tokens": document["tokens"] if has_role else [],
        "usage": usage,
        "addresses": [used_from_form(one) for one in used],
        "audit_events": [
            event for event in document["audit_events"] if _is_counting(event, user.id, accounts, has_role=has_role)
        ],
        "left_out": LEFT_OUT,
    }


def _is_counting(event: dict[str, Any], user_id: str, accounts: Mapping[str, str], *, has_role: bool) -> bool:
    """Whether an event is of the user or their keys, in these accounts or none, or of what a role of theirs reads."""
    is_own = event["object"] == f"user:{user_id}"
    if has_role:
        return True
    if account := event["account"]:
        is_own = is_own or event["object"].startswith("key:")
        return accounts.get(account) == "owner" or (account in accounts and is_own)
    return is_own and not event["actor"].startswith("system:oidc.")


def _document(connection: Connection, actor: Actor, user: User) -> dict[str, Any]:
    user_id = user.id
    password_set = connection.scalar(sa.select(users.c.password_set_at).where(users.c.id == user_id))
    return {
        "user": user.json_form() | {"password_set": time_text(from_micros_or_none(password_set))},
        "identities": _rows(connection, identities, user_id, "issuer", "subject"),
        "memberships": _rows(connection, memberships, user_id, "account", "role"),
        "links": _rows(connection, sign_in_links, user_id, "purpose"),
        "sessions": [session.json_form() for session in sessions_of(connection, user_id)],
        "invitations": _invitations(connection, actor, user),
        "tokens": [token.json_form() for token in tokens_by(connection, f"user:{user_id}")],
        "usage": _usage(connection, user_id),
        "addresses": [used_from_form(one) for one in addresses_of_keys(connection, keys_used_by(connection, user_id))],
        "audit_events": _events(connection, user_id),
    }


def _invitations(connection: Connection, actor: Actor, user: User) -> list[dict[str, Any]]:
    """Those of the address; none for a user who may be somebody else than its holder."""
    if actor.id == user.id and not user.is_proved:
        return []
    return [invitation.json_form() for invitation in invitations_of(connection, user.email)]


def _exported(connection: Connection, actor: Actor, user_id: str) -> User:
    user = user_by_id(connection, user_id)
    if actor.id != user_id:
        require_power_over(actor, user)
    return user


def _record_export(connection: Connection, actor: Actor, user_id: str) -> None:
    """Note the export of a user who is still there: events of erased people have no address."""
    _exported(connection, actor, user_id)
    record(connection, actor, "users.export", f"user:{user_id}")


def _rows(connection: Connection, table: sa.Table, user_id: str, *names: str) -> list[dict[str, Any]]:
    columns = [table.c[name] for name in (*names, "created_at")]
    query = sa.select(*columns).where(table.c.user_id == user_id).order_by(table.c.created_at)
    return [
        {name: row[name] for name in names} | {"created": time_text(from_micros(row["created_at"]))}
        for row in connection.execute(query).mappings()
    ]


def _usage(connection: Connection, user_id: str) -> list[dict[str, Any]]:
    """What the keys of the user were used for, by day, account, key and model."""
    table = usage_daily.c
    labels = [table.day, table.account, table.key_id, table.model]
    query = sa.select(*labels, sa.func.sum(table.calls), sa.func.sum(table.cost)).where(table.user_id == user_id)
    return [
        {
            "day": f"{from_micros(row[0]):%Y-%m-%d}",
            "account": row[1],
            "key": row[2],
            "model": row[3],
            "calls": int(row[4]),
            "cost": format_amount(int(row[5])),
        }
        for row in connection.execute(query.group_by(*labels).order_by(*labels))
    ]


def _events(connection: Connection, user_id: str) -> list[dict[str, Any]]:
    """What the user did, and what others did to the user; addresses of those others are not the user's data."""
    by = sa.and_(audit_events.c.actor_kind == "user", audit_events.c.actor_id == user_id)
    query = sa.select(audit_events).where(sa.or_(by, audit_events.c.object == f"user:{user_id}"))
    found = [event_of(row) for row in connection.execute(query.order_by(audit_events.c.at))]
    own = "user", user_id
    return [
        event.json_form() | ({} if (event.actor_kind, event.actor_id) == own else {"address": ""}) for event in found
    ]


def _erasable(connection: Connection, actor: Actor, user_id: str) -> User:
    require_power_over(actor, user_by_id(connection, user_id))
    if actor.kind == "user" and actor.id == user_id:
        raise Forbidden("Users cannot erase themselves")
    user, is_last = lock_user_and_operators(connection, user_id)
    require_power_over(actor, user)  # again: the user may have got more meanwhile
    if is_last:
        raise LastOperator
    return user


def _erase(connection: Connection, actor: Actor, user_id: str) -> list[str]:
    """The accounts that the user belonged to."""
    user = _erasable(connection, actor, user_id)
    end_access(connection, actor, user_id)
    forget_addresses(connection, keys_used_by(connection, user_id))
    table = invitations.c
    connection.execute(invitations.delete().where(sa.or_(table.email == user.email, table.former_user == user_id)))
    connection.execute(sign_ups.delete().where(sign_ups.c.email == user.email))
    connection.execute(users.delete().where(users.c.id == user_id))  # with what refers to it
    own = sa.and_(audit_events.c.actor_kind == "user", audit_events.c.actor_id == user_id)
    connection.execute(audit_events.update().where(own).values(address=""))
    record(connection, actor, "users.erase", f"user:{user_id}", before={"role": user.role})
    return list(user.accounts)
