"""API keys: created and shown once, stored as a fingerprint, revoked permanently.

A key belongs to one account and may have its own limits, budget, list of models and expiry. After `revoke` returns, the
next admission refuses the key, and a channel tells workers to cut its running calls. Sharp edge: a revocation survives
a crash of the store only if `Store.unconfirmed` reports none; the commands call it.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import suppress
from itertools import chain
from typing import Unpack

from msgspec import structs

from gateway.accounts.accounts import CHANGED, NAME, check_name, set_state
from gateway.accounts.authenticator import SHOWS_COST, USER, Fingerprint
from gateway.accounts.key_record import CreatedKey, KeyRecord, key_record
from gateway.accounts.key_settings import OWN, KeyLimits, check_key_name, key_fields
from gateway.accounts.pepper import Peppers
from gateway.accounts.stored_fields import StoredFields, hash_pairs
from gateway.errors import InvalidValue, NotFound
from gateway.ids import key_id as new_key_id
from gateway.ids import key_order
from gateway.ledger.gather_all import batches, gather_bounded
from gateway.ledger.listing.names import ACCOUNTS, key_ids
from gateway.ledger.paging import scan_set
from gateway.store.connection import RedisReplyError
from gateway.store.links import Links, slot

SECRET_BYTES = 32  # 256 bits
AT_ONCE = 100  # reads in flight, of the keys of one account
OWNERS_AT_ONCE = 100  # accounts whose ids of keys are read at the same time
KEY_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
TAKEN = "there is a key with this text already"
LOST = "lost with an older store"  # the name of such a key


class Keys:
    """The operations on keys.

    Only `create` and `owner_of` need the pepper: it may be given as a function that reads it, with the previous one.
    """

    def __init__(self, links: Links, pepper: bytes | Callable[[], Peppers]) -> None:
        self._links = links
        self._pepper = pepper

    @property
    def _peppers(self) -> Peppers:
        return self._pepper() if callable(self._pepper) else Peppers(self._pepper)

    async def create(
        self,
        account: str,
        *,
        name: str = "",
        show_cost: bool = False,
        user: str = "",
        text: str = "",
        **limits: Unpack[KeyLimits],
    ) -> CreatedKey:
        """Create a key; its text is only in the result. `show_cost`: answers have `x-gateway-cost`.

        `user`: the id of the user who has the key for good; empty for a service key. `text`: that of a key which exists
        elsewhere already, so that its owner keeps it.
        """
        check_name(account, "account")
        call = self._links.link(slot(account)).call
        if not await call("EXISTS", slot(account)):
            raise NotFound(f"no account {account!r}")
        now = int((await call("TIME"))[0])
        check_key_name(name)
        fields = key_fields(limits, now=now)
        if fields.get("every") and "cap" not in fields:
            raise InvalidValue("a period needs a budget")
        values: dict[str, str | int] = {"state": "active", "name": name, "created": now}
        values |= {field: value for field, value in fields.items() if value != ""}
        if user:
            values["user"] = user
        if values.keys() & OWN:
            values["own"] = 1
        return await self.store(account, values, show_cost=show_cost, text=text)

    async def store(self, account: str, values: dict[str, str | int], *, show_cost: bool, text: str = "") -> CreatedKey:
        """Store a new key with these fields of its hash; without a text it gets a random one.

        InvalidValue if a key has this text already. Of several calls with one text, one stores its key.
        """
        if text and await self.owner_of(text) is not None:
            raise InvalidValue(TAKEN)
        fingerprint_of = Fingerprint(self._peppers.current)
        call = self._links.link(slot(account)).call
        text = text or "sk-" + secrets.token_urlsafe(SECRET_BYTES)
        key_id = new_key_id()
        if show_cost:
            values = {**values, "cost": 1}
        marks = [SHOWS_COST] if show_cost else []
        # The fingerprint is written last, so an incomplete key can never be used.
        await key_ids(self._links, account).add(key_id)
        if user := values.get("user"):
            marks.append(f"{USER}{user}")
            await key_ids(self._links, account, str(user)).add(key_id)
        await call("HSET", f"{slot(account)}:k:{key_id}", *chain.from_iterable(values.items()), "last4", text[-4:])
        await self._links.link(f"ki:{key_id}").call("SET", f"ki:{key_id}", account)
        fingerprint = f"kh:{fingerprint_of(text)}"
        record = ":".join((account, key_id, *marks))
        if await self._links.link(fingerprint).call("SET", fingerprint, record, "NX") is None:
            await self._remove_unused(account, key_id, str(user or ""))
            raise InvalidValue(TAKEN)
        return CreatedKey(text, key_id, account, str(values.get("name", "")))

    async def _remove_unused(self, account: str, key_id: str, user: str) -> None:
        """Remove a key without a fingerprint, which nobody can have used.

        The hash goes first: a key without one is in no list, whatever interrupts the rest.
        """
        call = self._links.link(slot(account)).call
        await call("DEL", f"{slot(account)}:k:{key_id}")
        await self._links.link(f"ki:{key_id}").call("DEL", f"ki:{key_id}")
        with suppress(RedisReplyError):  # a user of the store that was made for an older version may not run SREM
            if user:
                await key_ids(self._links, account, user).remove(key_id)
            await key_ids(self._links, account).remove(key_id)

    async def owner_of(self, text: str) -> tuple[str, str] | None:
        """Account and id of the key with this text, whatever its state; None if there is none.

        During a rotation of the pepper, the key may be stored under the previous one alone.
        """
        peppers = self._peppers
        for pepper in filter(None, (peppers.current, peppers.previous)):
            found = await self.owner_of_fingerprint(Fingerprint(pepper)(text))
            if found is not None:
                return found
        return None

    async def owner_of_fingerprint(self, fingerprint: str) -> tuple[str, str] | None:
        """`owner_of` by the HMAC of the text."""
        name = f"kh:{fingerprint}"
        found = await self._links.link(name).call("GET", name)
        if found is None:
            return None
        account, key_id, *_ = found.decode().split(":")
        return account, key_id

    async def list(self, account: str | None = None) -> list[KeyRecord]:
        """The keys of one account, or of all, oldest first; NotFound if there is no such account."""
        if account is None:
            accounts = sorted(await scan_set(self._links.link(ACCOUNTS), ACCOUNTS))
        else:
            await self.require_account(account)
            accounts = [account]
        now = int((await self._links.link(ACCOUNTS).call("TIME"))[0])
        found: list[KeyRecord] = []
        for some in batches(accounts, OWNERS_AT_ONCE):
            ids = await gather_bounded(map(self.ids, some), OWNERS_AT_ONCE)
            records = await self._read_keys(
                [(owner, id_) for owner, of in zip(some, ids, strict=True) for id_ in of], now
            )
            found += sorted(records, key=lambda key: (key.account, key.created, key.id))
        return found

    async def require_account(self, account: str) -> None:
        """NotFound if there is no such account."""
        if not NAME.fullmatch(account) or not await self._links.link(slot(account)).call("EXISTS", slot(account)):
            raise NotFound(f"no account {account!r}")

    async def of_user(self, account: str, user: str) -> Sequence[KeyRecord]:
        """The keys of a user in an account, oldest first."""
        return await self._read_all(account, await self.ids(account, user))

    async def ids(self, account: str, user: str | None = None) -> Sequence[str]:
        """The ids of an account's keys, or of those of one user in it, in their `key_order`."""
        found = await scan_set(self._links.link(slot(account)), key_ids(self._links, account, user).name)
        return sorted(found, key=key_order)

    async def has(self, account: str, key_id: str, user: str | None = None) -> bool:
        """Whether the account has the key, or the user has it in the account."""
        index = key_ids(self._links, account, user)
        return bool(await index.link.call("SISMEMBER", index.name, key_id))

    def id_pages(
        self, account: str, user: str | None = None, *, after: str = "", size: int, backwards: bool = False
    ) -> AsyncIterator[Sequence[str]]:
        """The ids behind `after`, `size` at a time in their `key_order`; `backwards`: newest first."""
        return key_ids(self._links, account, user).pages(after=after, size=size, backwards=backwards)

    async def read(self, account: str, ids: Sequence[str], *, now: int | None = None) -> Sequence[KeyRecord]:
        """The keys with these ids, in their order; ids of no key of the account are left out.

        `now` is the store's time in seconds, which is asked for without it.
        """
        if not ids:
            return []
        if now is None:
            now = int((await self._links.link(slot(account)).call("TIME"))[0])
        return await self._read_keys([(account, one) for one in ids], now)

    async def _read_keys(self, keys: Sequence[tuple[str, str]], now: int) -> Sequence[KeyRecord]:
        """The keys of accounts, without a task for each."""
        replies = (self._links.link(slot(one)).call("HGETALL", f"{slot(one)}:k:{id_}") for one, id_ in keys)
        values = await gather_bounded(replies, AT_ONCE)
        found = (_record(*key, fields, now) for key, fields in zip(keys, values, strict=True))
        return [key for key in found if key is not None]

    async def _read_all(self, account: str, ids: Sequence[str]) -> Sequence[KeyRecord]:
        return sorted(await self.read(account, ids), key=lambda key: (key.created, key.id))

    async def show(self, key_id: str) -> KeyRecord:
        """One key; NotFound if there is none."""
        record = await self.find(key_id)
        if record is None:
            raise NotFound(f"no key {key_id!r}")
        return record

    async def revoke(self, key_id: str) -> KeyRecord:
        """Revoke a key permanently and at once; a second call changes nothing. NotFound if there is none."""
        return await self.close(await self.show(key_id))

    async def close(self, found: KeyRecord) -> KeyRecord:
        """`revoke` of a key that was read before."""
        account = found.account
        await set_state(self._links, account, f"{slot(account)}:k:{found.id}", "revoked")
        await self._tell(found)
        record = await self._read(account, found.id)
        return record or structs.replace(found, state="revoked")  # `store` has removed one whose text was taken

    async def disable(self, key: KeyRecord) -> bool:
        """Refuse further calls of an active key, and cut its running calls; False if it is not active."""
        name = f"{slot(key.account)}:k:{key.id}"
        changed = await set_state(self._links, key.account, name, "disabled", only="active")
        if changed:
            await self._tell(key)
        return changed

    async def enable(self, key: KeyRecord) -> bool:
        """Undo `disable`; False if the key is not disabled."""
        name = f"{slot(key.account)}:k:{key.id}"
        return await set_state(self._links, key.account, name, "active", only="disabled")

    async def _tell(self, key: KeyRecord) -> None:
        """Tell the workers that the key may not spend any more."""
        await self._links.link(slot(key.account)).call("PUBLISH", CHANGED, f"{key.account}:{key.id}")

    async def find(self, key_id: str, account: str = "") -> KeyRecord | None:
        """The key of this id, or None. `account`: that of the key, if it is known."""
        account = account or await self.account_of(key_id)
        return await self._read(account, key_id) if account and KEY_ID.fullmatch(key_id) else None

    async def account_of(self, key_id: str) -> str:
        """The account of the key of this id; "" if there is none."""
        found = await self._links.link(f"ki:{key_id}").call("GET", f"ki:{key_id}")
        return found.decode() if found else ""

    async def _read(self, account: str, key_id: str, now: int | None = None) -> KeyRecord | None:
        """The key; `now` is the store's time in seconds, which is asked for without it."""
        call = self._links.link(slot(account)).call
        if now is None:
            now = int((await call("TIME"))[0])
        return _record(account, key_id, await call("HGETALL", f"{slot(account)}:k:{key_id}"), now)


def _record(account: str, key_id: str, values: list[bytes], now: int) -> KeyRecord | None:
    fields = StoredFields(hash_pairs(values))
    return key_record(account, key_id, fields, now) if "state" in fields else None


async def keep_lost_keys(links: Links, account: str, lost: Collection[str]) -> None:
    """Store those of the keys that the account does not have. It may be repeated, and interrupted. StoreUnavailable.

    They are keys that an older store does not have, although calls of theirs are booked again. The text of such a key
    is unknown, so it is stored as a revoked key without a fingerprint. Nobody can use it, and the charges under its id
    still add up.
    """
    call = links.link(slot(account)).call
    if not await call("EXISTS", slot(account)):
        return
    now = int((await call("TIME"))[0])
    for key_id in lost:
        name = f"{slot(account)}:k:{key_id}"
        if await call("HEXISTS", name, "state"):
            continue
        await key_ids(links, account).add(key_id)
        await links.link(f"ki:{key_id}").call("SET", f"ki:{key_id}", account)
        await call("HSET", name, "name", LOST, "created", now, "last4", "", "state", "revoked")
