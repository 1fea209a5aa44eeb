"""The keys of an account that a person may see: members their own; owners, viewers and operators all."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from gateway.accounts.keys import KeyRecord, Keys
from gateway.admin.actor import Actor
from gateway.errors import NotFound
from gateway.ids import key_order

READ_AT_ONCE = 100  # keys of the store
READ_AT_MOST = 1000  # for one page: some 50 ms


class KeyPage(Struct, frozen=True):
    """Some keys, newest first; `next` is the id behind which the next page begins, empty for the last page."""

    keys: list[KeyRecord]
    next: str


class VisibleKeys:
    """Lists and finds them."""

    def __init__(self, keys: Keys) -> None:
        self._keys = keys

    async def ids(self, actor: Actor, account: str) -> Sequence[str]:
        """The ids, newest first; none of an account that the actor does not belong to."""
        if self.sees_all(actor, account):
            return (await self._keys.ids(account))[::-1]
        return (await self._keys.ids(account, actor.id))[::-1] if account in actor.memberships else []

    async def page(
        self,
        actor: Actor,
        account: str,
        fits: Callable[[KeyRecord], bool],
        *,
        size: int,
        after: str = "",
    ) -> KeyPage:
        """At most `size` keys that fit, behind the key `after`.

        It reads `READ_AT_MOST` keys: where few of them fit, a page has fewer, or none, and others follow.
        """
        ids = _behind(await self.ids(actor, account), after)
        found = list[KeyRecord]()
        for start in range(0, min(len(ids), READ_AT_MOST), READ_AT_ONCE):
            some = await self._keys.read(account, ids[start : start + READ_AT_ONCE])
            found += filter(fits, some)
            if len(found) > size:
                return KeyPage(found[:size], found[size - 1].id)
        return KeyPage(found, ids[READ_AT_MOST - 1] if len(ids) > READ_AT_MOST else "")

    @staticmethod
    def sees_all(actor: Actor, account: str) -> bool:
        """Whether the actor sees all keys of the account, not only those of their own."""
        return actor.may_read("keys", account) or actor.owns(account)

    async def show(self, actor: Actor, account: str, key_id: str) -> KeyRecord:
        """One key; NotFound for one of another account, or of another member, too."""
        key = await self._keys.find(key_id)
        if key is None or key.account != account or not (self.sees_all(actor, account) or _is_own(actor, key)):
            raise NotFound(f"There is no key {key_id!r}")
        return key


def _behind(ids: Sequence[str], after: str) -> Sequence[str]:
    """The ids behind `after`, whether or not it is one of them."""
    return [one for one in ids if key_order(one) < key_order(after)] if after else ids


def _is_own(actor: Actor, key: KeyRecord) -> bool:
    return actor.kind == "user" and key.user == actor.id and key.account in actor.memberships
