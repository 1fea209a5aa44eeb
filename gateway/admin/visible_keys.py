"""The keys of an account that a person may see: members their own; owners, viewers and operators all."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.accounts.keys import KeyRecord, Keys
from gateway.admin.actor import Actor
from gateway.errors import NotFound


class VisibleKeys:
    """Lists and finds them."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def list(self, actor: Actor, account: str) -> Sequence[KeyRecord]:
        """The keys, oldest first; none of an account that the actor does not belong to."""
        if _sees_all(actor, account):
            return await self._keys.list(account)
        return await self._keys.of_user(account, actor.id) if account in actor.memberships else []

    @staticmethod
    def reader(actor: Actor, account: str) -> str:
        """What the keys that the actor may see depend on: "" for whoever sees all of the account, or the actor."""
        return "" if _sees_all(actor, account) else actor.name

    async def show(self, actor: Actor, account: str, key_id: str) -> KeyRecord:
        """One key; NotFound for one of another account, or of another member, too."""
        key = await self._keys.find(key_id)
        if key is None or key.account != account or not (_sees_all(actor, account) or _is_own(actor, key)):
            raise NotFound(f"There is no key {key_id!r}")
        return key


def _sees_all(actor: Actor, account: str) -> bool:
    return actor.may_read("keys", account) or actor.owns(account)


def _is_own(actor: Actor, key: KeyRecord) -> bool:
    return actor.kind == "user" and key.user == actor.id and key.account in actor.memberships
