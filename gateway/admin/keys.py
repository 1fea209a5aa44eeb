"""API keys for people and programs: each operation has its rights, its check of the pepper and its audit event."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Unpack

from msgspec import Struct

from gateway.accounts.accounts import Accounts, time_text
from gateway.accounts.key_edits import KeyEdits
from gateway.accounts.key_record import CreatedKey, KeyRecord, Rotated, is_unused
from gateway.accounts.key_settings import KeyLimits
from gateway.accounts.keys import Keys
from gateway.accounts.store_claim import PepperCheck
from gateway.admin.actor import Actor
from gateway.admin.audit_event import changes, new_event
from gateway.admin.outbox import AuditOutbox
from gateway.admin.rights import has_key, reads_keys, require_manages_keys, require_reads_keys
from gateway.amounts import format_amount
from gateway.errors import NotFound

READ_AT_ONCE = 100  # keys of the store
READ_AT_MOST = 1000  # for one page: some 50 ms
#: What an event does not show: figures that calls change.
COUNTED = ("spent", "period_spent", "last_used")


class KeyPage(Struct, frozen=True):
    """Some keys, newest first; `next` is the id behind which the next page begins, empty for the last page."""

    keys: list[KeyRecord]
    next: str


class KeyService:
    """What operators do with keys of any account, owners with keys of theirs, and members with their own.

    A `KeyRecord` that a method takes was read a moment before, so that one change reads the key once.
    """

    def __init__(
        self, accounts: Accounts, keys: Keys, edits: KeyEdits, outbox: AuditOutbox, pepper: PepperCheck
    ) -> None:
        self._accounts = accounts
        self._keys = keys
        self._edits = edits
        self._outbox = outbox
        self._pepper = pepper

    async def check_pepper(self) -> None:
        """`PepperCheck.check`: for those who look for keys by their texts before they make some."""
        await self._pepper.check()

    async def create(
        self,
        actor: Actor,
        account: str,
        *,
        name: str = "",
        show_cost: bool = False,
        user: str = "",
        text: str = "",
        **limits: Unpack[KeyLimits],
    ) -> CreatedKey:
        """Create a key; its text is only in the result. `text`: see `Keys.create`.

        `user`: the id of a member, which the caller has checked.
        """
        require_manages_keys(actor, account, user)
        await self._accounts.show(account)
        await self._pepper.check()
        key = await self._keys.create(account, name=name, show_cost=show_cost, user=user, text=text, **limits)
        after = {"name": name, **({"user": user} if user else {}), **_shown_limits(limits)}
        await self._record(actor, "create", key.id, account, {}, after)
        return key

    async def list(
        self, actor: Actor, account: str | None = None, *, unused_since: datetime | None = None
    ) -> list[KeyRecord]:
        """The keys of one account, or of all, oldest first; NotFound for an unknown account.

        `unused_since`: only active ones that were made before and not used since then. The last use is noted once a
        minute. A key that was not used since an older version counts from its creation.
        """
        require_reads_keys(actor, account or "")
        found = await self._keys.list(account)
        if unused_since is None:
            return found
        moment = unused_since.astimezone(UTC)
        return [key for key in found if is_unused(key, moment)]

    async def ids(self, actor: Actor, account: str, user: str = "") -> Collection[str]:
        """The ids of a user's keys in an account; of a reader's own without a user. None of what they may not see."""
        owner = user or actor.id
        may_see = reads_keys(actor, account) or (owner == actor.id and account in actor.memberships)
        return await self._keys.ids(account, owner) if may_see else []

    async def has(self, actor: Actor, account: str, key_id: str, user: str = "") -> bool:
        """Whether the account has the key, the actor may see it, and it is one of the user's if one is given."""
        if reads_keys(actor, account):
            return await self._keys.has(account, key_id, user or None)
        return (
            account in actor.memberships
            and user in ("", actor.id)
            and (await self._keys.has(account, key_id, actor.id))
        )

    async def newest_ids(self, actor: Actor, account: str, most: int) -> Sequence[str]:
        """The ids of the newest keys that the actor may see, newest first."""
        async for ids in self._id_pages(actor, account, size=most):
            return ids
        return []

    async def page(
        self,
        actor: Actor,
        account: str,
        fits: Callable[[KeyRecord], bool],
        *,
        size: int,
        after: str = "",
    ) -> KeyPage:
        """At most `size` keys that fit and that the actor may see, behind the key `after`.

        It reads `READ_AT_MOST` keys: where few of them fit, a page has fewer, or none, and others follow.
        """
        found, count, last = list[KeyRecord](), 0, ""
        async for ids in self._id_pages(actor, account, size=READ_AT_ONCE, after=after):
            if count >= READ_AT_MOST:
                return KeyPage(found, last)
            found += filter(fits, await self._keys.read(account, ids))
            if len(found) > size:
                return KeyPage(found[:size], found[size - 1].id)
            count, last = count + len(ids), ids[-1]
        return KeyPage(found, "")

    async def _id_pages(
        self, actor: Actor, account: str, *, size: int, after: str = ""
    ) -> AsyncIterator[Sequence[str]]:
        """Ids of keys that the actor may see, newest first."""
        user = None if reads_keys(actor, account) else actor.id
        if user is not None and account not in actor.memberships:
            return
        async for ids in self._keys.id_pages(account, user, after=after, size=size, backwards=True):
            yield ids

    async def show(self, actor: Actor, key_id: str, account: str = "") -> KeyRecord:
        """One key, of the account if one is given; NotFound for one that the actor may not see, too."""
        key = await self._keys.find(key_id, account)
        if key is None or not (reads_keys(actor, key.account) or has_key(actor, key)):
            raise NotFound(f"no key {key_id!r}")
        return key

    async def edit(
        self,
        actor: Actor,
        key: KeyRecord,
        *,
        name: str | None = None,
        clear: Collection[str] = (),
        **limits: Unpack[KeyLimits],
    ) -> KeyRecord:
        """`KeyEdits.edit`; needs the scope `keys`, or an owner of the account. The key's own user may rename it."""
        only_renames = not clear and all(value is None for value in limits.values())
        require_manages_keys(actor, key.account, (key.user or "") if only_renames else "")
        after = await self._edits.edit(key, name=name, clear=clear, **limits)
        await self._record(actor, "edit", key.id, key.account, *changes(_shown(key), _shown(after)))
        return after

    async def rotate(self, actor: Actor, key: KeyRecord, *, overlap: timedelta) -> Rotated:
        """`KeyEdits.rotate`; needs the scope `keys`, an owner of the account, or the key's own user."""
        require_manages_keys(actor, key.account, key.user or "")
        await self._pepper.check()
        rotated = await self._edits.rotate(key.account, key.id, overlap=overlap)
        after = {"replaced_by": rotated.new.id, "expires": rotated.old.json_form()["expires"]}
        await self._record(actor, "rotate", key.id, key.account, {"expires": key.json_form()["expires"]}, after)
        return rotated

    async def revoke(self, actor: Actor, key: KeyRecord) -> KeyRecord:
        """Revoke a key permanently and at once; a second call changes nothing."""
        require_manages_keys(actor, key.account, key.user or "")
        if key.state == "revoked":
            return key
        revoked = await self._keys.close(key)
        await self._record(actor, "revoke", key.id, key.account, {"state": key.state}, {"state": revoked.state})
        return revoked

    async def _record(
        self, actor: Actor, action: str, key_id: str, account: str, before: dict[str, Any], after: dict[str, Any]
    ) -> None:
        event = new_event(actor, f"keys.{action}", f"key:{key_id}", account=account, before=before, after=after)
        await self._outbox.add(event)


def _shown(key: KeyRecord) -> dict[str, Any]:
    return {name: value for name, value in key.json_form().items() if name not in COUNTED}


def _shown_limits(limits: KeyLimits) -> dict[str, Any]:
    shown: dict[str, Any] = {name: value for name, value in limits.items() if value is not None}
    if (budget := limits.get("budget")) is not None:
        shown["budget"] = format_amount(budget)
    if (expires := limits.get("expires")) is not None:
        shown["expires"] = time_text(expires)
    if (models := limits.get("models")) is not None:
        shown["models"] = list(models)
    return shown
