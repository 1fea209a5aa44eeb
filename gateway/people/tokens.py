"""Admin tokens: `gwa_…`, for programs. They have scopes, may be restricted to an account, and may expire.

A token is shown once and stored as an HMAC with a key derived from the pepper, like API keys. `authenticate` reads the
database each time, so a revocation holds at once. While the pepper is replaced, a token of the previous one is valid,
and is stored under the current one when it is used.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from msgspec import Struct, structs
from sqlalchemy.engine import Connection

from gateway.accounts.accounts import Directory
from gateway.accounts.pepper import Peppers
from gateway.admin.actor import Actor, Scope, checked_scopes
from gateway.admin.audit_trail import record
from gateway.admin.current_rights import ends_with
from gateway.admin.pages import MOST, READ_AT_MOST
from gateway.admin.times import MICROSECOND, from_micros, from_micros_or_none, now, time_text, to_micros
from gateway.admin.transactions import Transactions
from gateway.admin.values import checked_name
from gateway.database.people_tables import admin_tokens
from gateway.errors import InvalidValue, NotFound, NotSignedIn
from gateway.people.made_by import end_made_by, is_active, tokens_made_by
from gateway.people.random_ids import ADMIN_TOKEN, AdminTokenHash, new_id, new_token

FORM = re.compile(rf"{ADMIN_TOKEN}[A-Za-z0-9_-]{{43}}", re.ASCII)
NOTED_EVERY = timedelta(minutes=1) // MICROSECOND  # `last_used` is no more precise


class TokenRecord(Struct, frozen=True):
    """A token without its text."""

    id: str
    name: str
    last4: str
    state: str  # active, expired, revoked
    scopes: list[Scope]
    account: str | None
    created_by: str
    created: datetime
    expires: datetime | None
    last_used: datetime | None

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway tokens list`."""
        form = structs.asdict(self)
        return form | {name: time_text(form[name]) for name in ("created", "expires", "last_used")}


class NewToken(Struct, frozen=True):
    """A new token; the only object with its text."""

    text: str
    record: TokenRecord

    def __repr__(self) -> str:
        return f"NewToken(text='***', record={self.record!r})"

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `gateway tokens create --json`."""
        form = self.record.json_form()
        return {"token": self.text, **{name: form[name] for name in ("id", "name", "scopes", "account", "expires")}}


class Tokens:
    """Makes, lists, revokes and checks tokens. Only an operator makes them, so that no token makes a stronger one."""

    def __init__(self, transactions: Transactions, directory: Directory, peppers: Peppers) -> None:
        self._transactions = transactions
        self._directory = directory
        self._hash = AdminTokenHash(peppers.current)
        self._previous_hash = AdminTokenHash(peppers.previous) if peppers.previous else None

    async def create(
        self,
        actor: Actor,
        name: str,
        scopes: Iterable[str],
        *,
        account: str | None = None,
        expires: datetime | None = None,
    ) -> NewToken:
        """Make a token; that of a token expires no later than its maker. InvalidValue; NotFound: no such account."""
        actor.require_operator()
        values = {"name": checked_name(name), "scopes": " ".join(checked_scopes(scopes, account))}
        if not values["name"]:
            raise InvalidValue("A token needs a name that says what it is for", param="name")
        end = None if expires is None else to_micros(expires)
        if end is not None and end <= now():
            raise InvalidValue(f"{time_text(expires)} has passed already", param="expires")
        if account is not None:
            await self._directory.require(account)
        text = new_token(ADMIN_TOKEN)
        row = values | {"account": account or "", "expires_at": end, "token_hash": self._hash(text), "last4": text[-4:]}
        return NewToken(text, await self._transactions.write_as(actor, _insert, row))

    async def ending_with(self, actor: Actor, user_id: str) -> list[TokenRecord]:
        """The valid tokens that end with the role of a user on the site: those that the user and these tokens made."""
        actor.require_read("config")
        return await self._transactions.read(_ending_with, user_id)

    async def list(self, actor: Actor, *, before: str = "", limit: int = MOST) -> list[TokenRecord]:
        """Tokens, newest first, those behind the one with the id `before`; at most `READ_AT_MOST`."""
        actor.require_read("config")
        table = admin_tokens.c
        query = (
            sa.select(admin_tokens).order_by(table.created_at.desc(), table.id.desc()).limit(min(limit, READ_AT_MOST))
        )
        if before:
            last = sa.select(table.created_at).where(table.id == before).scalar_subquery()
            query = query.where(sa.or_(table.created_at < last, sa.and_(table.created_at == last, table.id < before)))
        return await self._transactions.read(_tokens, query)

    async def revoke(self, actor: Actor, token_id: str) -> TokenRecord:
        """End a token for good, and what it made: open links, invitations and tokens; a second call changes nothing.

        NotFound. A token may revoke itself.
        """
        if not (actor.kind == "token" and actor.id == token_id):
            actor.require_operator()
        return await self._transactions.write_as(actor, _revoke, token_id)

    async def authenticate(self, text: str, *, address: str = "") -> Actor:
        """Who acts with this token; NotSignedIn if it is malformed, unknown, expired or revoked."""
        if not FORM.fullmatch(text):
            raise NotSignedIn
        stored = self._hash(text)
        found = await self._transactions.read(_with_hash, stored)
        if is_of_previous := not found and self._previous_hash is not None:
            found = await self._transactions.read(_with_hash, self._previous_hash(text))
        if not found or found[0].state != "active":
            raise NotSignedIn
        token = found[0]
        if is_of_previous or token.last_used is None or now() - to_micros(token.last_used) > NOTED_EVERY:
            await self._transactions.write(_note_used, token.id, stored)
        scopes = frozenset(token.scopes)
        return Actor(kind="token", id=token.id, scopes=scopes, account=token.account or "", address=address)


def tokens_by(connection: Connection, creator: str) -> list[TokenRecord]:
    """The tokens that an actor made."""
    return _tokens(connection, sa.select(admin_tokens).where(admin_tokens.c.created_by == creator))


def _ending_with(connection: Connection, user_id: str) -> list[TokenRecord]:
    at = now()
    return [_token(row, at) for row in tokens_made_by(connection, f"user:{user_id}") if is_active(row, at)]


def _insert(connection: Connection, actor: Actor, row: dict[str, Any]) -> TokenRecord:
    row = row | {"id": new_id("tok"), "created_by": actor.name, "created_at": now()}
    row["expires_at"] = ends_with(connection, actor, row["expires_at"])
    connection.execute(admin_tokens.insert().values(row))
    [token] = _tokens(connection, sa.select(admin_tokens).where(admin_tokens.c.id == row["id"]))
    after = {"name": token.name, "scopes": token.scopes, "expires": time_text(token.expires)}
    record(connection, actor, "tokens.create", f"token:{token.id}", account=row["account"], after=after)
    return token


def _revoke(connection: Connection, actor: Actor, token_id: str) -> TokenRecord:
    query = sa.select(admin_tokens).where(admin_tokens.c.id == token_id)
    found = _tokens(connection, query)
    if not found:
        raise NotFound(f"There is no token {token_id!r}")
    if found[0].state == "revoked":
        return found[0]
    connection.execute(admin_tokens.update().where(admin_tokens.c.id == token_id).values(revoked_at=now()))
    end_made_by(connection, actor, f"token:{token_id}")
    [token] = _tokens(connection, query)
    sides = {"before": {"state": found[0].state}, "after": {"state": token.state}}
    record(connection, actor, "tokens.revoke", f"token:{token_id}", account=token.account or "", **sides)
    return token


def _with_hash(connection: Connection, stored: bytes) -> list[TokenRecord]:
    return _tokens(connection, sa.select(admin_tokens).where(admin_tokens.c.token_hash == stored))


def _note_used(connection: Connection, token_id: str, stored: bytes) -> None:
    used = admin_tokens.update().where(admin_tokens.c.id == token_id)
    connection.execute(used.values(last_used_at=now(), token_hash=stored))


def _tokens(connection: Connection, query: sa.Select[Any]) -> list[TokenRecord]:
    at = now()
    return [_token(row, at) for row in connection.execute(query)]


def _token(row: sa.Row[Any], at: int) -> TokenRecord:
    expired = row.expires_at is not None and row.expires_at <= at
    return TokenRecord(
        row.id,
        row.name,
        row.last4,
        "revoked" if row.revoked_at is not None else "expired" if expired else "active",
        row.scopes.split(" "),
        row.account or None,
        row.created_by,
        from_micros(row.created_at),
        from_micros_or_none(row.expires_at),
        from_micros_or_none(row.last_used_at),
    )
