"""Finds the users who get keys in an import, and makes their keys."""

from __future__ import annotations

import csv
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gateway.accounts.key_record import CreatedKey
from gateway.admin.actor import Actor
from gateway.admin.user_rows import User
from gateway.errors import NotFound
from gateway.people.member_keys import MemberKeys
from gateway.people.users import Users

if TYPE_CHECKING:
    from gateway.people.people import People

COLUMN = "user"


def names_users(content: bytes) -> bool:
    """Whether a file of keys has the column of users, so that the import needs the database."""
    head = content.partition(b"\n")[0].decode("utf-8-sig", errors="replace")
    with suppress(csv.Error):
        return COLUMN in [cell.strip() for cell in next(csv.reader([head]), [])]
    return False


class KeyOwners:
    """The users of one database. A user is read once for each import."""

    def __init__(self, users: Users, member_keys: MemberKeys) -> None:
        self._users = users
        self._keys = member_keys
        self._known: dict[str, User | None] = {}  # by e-mail

    @classmethod
    def of(cls, people: People) -> KeyOwners:
        """The users of these services."""
        return cls(people.users, people.member_keys)

    async def find(self, actor: Actor, email: str, account: str) -> User | str:
        """The active member of an account with this e-mail; a text that says why there is none."""
        if email not in self._known:
            try:
                self._known[email] = await self._users.find(actor, email)
            except NotFound:
                self._known[email] = None
        user = self._known[email]
        if user is None:
            return f"there is no user {email}"
        if account not in user.accounts:
            return f"{email} is no member of {account}"
        return user if user.state == "active" else f"{email} is disabled"

    async def create(self, actor: Actor, account: str, user_id: str, **options: Any) -> CreatedKey:
        """`MemberKeys.create`."""
        return await self._keys.create(actor, account, user_id, **options)
