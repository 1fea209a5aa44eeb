"""API keys: created and shown once, stored as a fingerprint, revoked permanently.

A key belongs to one account and may have its own limits, budget, list of models and expiry. After `revoke` returns, the
next admission refuses the key, and a channel tells workers to cut its running calls. Sharp edge: a revocation survives
a crash of the store only if `Store.doubts` reports none; the commands call it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from itertools import chain
from typing import Any, Unpack

import msgspec
from msgspec import Struct, structs

from gateway.accounts.accounts import CHANGED, Refused, check_name, set_state, time_text
from gateway.accounts.authenticator import SHOWS_COST, USER, Fingerprint
from gateway.accounts.key_scopes import read_scopes
from gateway.accounts.key_settings import KeyLimits, check_key_name, key_fields
from gateway.accounts.pepper import Peppers
from gateway.amounts import format_amount
from gateway.ids import key_id as new_key_id
from gateway.ids import key_order
from gateway.ledger.paging import scan_set
from gateway.ledger.periods import Every, period_of
from gateway.ledger.scripts import Links, slot
from gateway.ledger.store_audit import ACCOUNTS
from gateway.store.command import text_fields
from gateway.store.connection import RedisReplyError

SECRET_BYTES = 32  # 256 bits
AT_ONCE = 500  # reads in flight, of the keys of one account
OWNERS_AT_ONCE = 50  # accounts whose keys are read at the same time
TAKEN = "there is a key with this text already"
OWN = frozenset({"max", "every", "base", "scopes", "user"})  # fields that admissions read only if `own` is set


class KeyRecord(Struct, frozen=True):
    """A key without its secret; amounts in nano-units."""

    id: str
    account: str
    name: str
    last4: str
    state: str  # active, disabled, revoked, expired
    created: datetime
    expires: datetime | None
    rpm: int | None
    tpm: int | None
    concurrency: int | None
    models: list[str] | None
    budget: int | None
    spent: int
    show_cost: bool
    every: str | None = None  # the period of the budget: month, week, day
    period_spent: int | None = None  # what counts against the budget; None without a budget
    max_cost: int | None = None
    endpoints: list[str] | None = None
    addresses: list[str] | None = None
    last_used: datetime | None = None  # at most an hour before the last call; None: not used since it is noted
    user: str | None = None  # the id of the member who has it; None for a service key

    def json_form(self) -> dict[str, Any]:
        """The JSON document of the command line."""
        form = structs.asdict(self)
        show_cost = form.pop("show_cost")
        return {
            **form,
            "created": time_text(self.created),
            "expires": time_text(self.expires) if self.expires else None,
            "budget": format_amount(self.budget) if self.budget is not None else None,
            "spent": format_amount(self.spent),
            "period_spent": format_amount(self.period_spent) if self.period_spent is not None else None,
            "max_cost": format_amount(self.max_cost) if self.max_cost is not None else None,
            "last_used": time_text(self.last_used) if self.last_used else None,
            "response_headers": ["cost"] if show_cost else [],
            "show_cost": show_cost,  # the old name of the one above
        }


class NewKey(Struct, frozen=True):
    """A new key; the only object with its text."""

    text: str
    id: str
    account: str
    name: str

    def __repr__(self) -> str:
        return f"NewKey(text='***', id={self.id!r}, account={self.account!r}, name={self.name!r})"

    def json_form(self) -> dict[str, Any]:
        """The JSON document of `keys create --json`."""
        return {"key": self.text, "id": self.id, "account": self.account, "name": self.name}


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
    ) -> NewKey:
        """Create a key; its text is only in the result. `show_cost`: answers have `x-gateway-cost`.

        `user`: the id of the user who has the key for good; empty for a service key. `text`: that of a key which exists
        elsewhere already, so that its owner keeps it.
        """
        check_name(account, "account")
        call = self._links.link(slot(account)).call
        if not await call("EXISTS", slot(account)):
            raise Refused(f"no account {account!r}")
        now = int((await call("TIME"))[0])
        check_key_name(name)
        fields = key_fields(limits, now=now)
        if fields.get("every") and "cap" not in fields:
            raise Refused("a period needs a budget")
        values: dict[str, str | int] = {"state": "active", "name": name, "created": now}
        values |= {field: value for field, value in fields.items() if value != ""}
        if user:
            values["user"] = user
        if values.keys() & OWN:
            values["own"] = 1
        return await self.store(account, values, show_cost=show_cost, text=text)

    async def store(self, account: str, values: dict[str, str | int], *, show_cost: bool, text: str = "") -> NewKey:
        """Store a new key with these fields of its hash; without a text it gets a random one.

        Refused if a key has this text already. Of several calls with one text at the same time, one stores its key.
        """
        if text and await self.owner_of(text) is not None:
            raise Refused(TAKEN)
        fingerprint_of = Fingerprint(self._peppers.current)
        call = self._links.link(slot(account)).call
        text = text or "sk-" + secrets.token_urlsafe(SECRET_BYTES)
        key_id = new_key_id()
        if show_cost:
            values = {**values, "cost": 1}
        marks = [SHOWS_COST] if show_cost else []
        # The fingerprint is written last, so an incomplete key can never be used.
        await call("SADD", f"{slot(account)}:ks", key_id)
        if user := values.get("user"):
            marks.append(f"{USER}{user}")
            await call("SADD", keys_of_user(account, str(user)), key_id)
        await call("HSET", f"{slot(account)}:k:{key_id}", *chain.from_iterable(values.items()), "last4", text[-4:])
        await self._links.link(f"ki:{key_id}").call("SET", f"ki:{key_id}", account)
        fingerprint = f"kh:{fingerprint_of(text)}"
        record = ":".join((account, key_id, *marks))
        if await self._links.link(fingerprint).call("SET", fingerprint, record, "NX") is None:
            await self._remove_unused(account, key_id, str(user or ""))
            raise Refused(TAKEN)
        return NewKey(text, key_id, account, str(values.get("name", "")))

    async def _remove_unused(self, account: str, key_id: str, user: str) -> None:
        """Remove a key without a fingerprint, which nobody can have used.

        The hash goes first: a key without one is in no list, whatever interrupts the rest.
        """
        call = self._links.link(slot(account)).call
        await call("DEL", f"{slot(account)}:k:{key_id}")
        await self._links.link(f"ki:{key_id}").call("DEL", f"ki:{key_id}")
        with suppress(RedisReplyError):  # a user of the store that was made for an older version may not run SREM
            if user:
                await call("SREM", keys_of_user(account, user), key_id)
            await call("SREM", f"{slot(account)}:ks", key_id)

    async def owner_of(self, text: str) -> tuple[str, str] | None:
        """Account and id of the key with this text, whatever its state; None if there is none.

        During a rotation of the pepper, the key may be stored under the previous one alone.
        """
        peppers = self._peppers
        for pepper in filter(None, (peppers.current, peppers.previous)):
            name = f"kh:{Fingerprint(pepper)(text)}"
            found = await self._links.link(name).call("GET", name)
            if found is not None:
                account, key_id, *_ = found.decode().split(":")
                return account, key_id
        return None

    async def list(self, account: str | None = None) -> list[KeyRecord]:
        """The keys of one account, or of all, oldest first."""
        if account is None:
            accounts = sorted(await scan_set(self._links.link(ACCOUNTS), ACCOUNTS))
        else:
            check_name(account, "account")
            if not await self._links.link(slot(account)).call("EXISTS", slot(account)):
                raise Refused(f"no account {account!r}")
            accounts = [account]
        found: list[KeyRecord] = []
        for start in range(0, len(accounts), OWNERS_AT_ONCE):
            for records in await asyncio.gather(*map(self._of, accounts[start : start + OWNERS_AT_ONCE])):
                found += records
        return found

    async def _of(self, account: str) -> Sequence[KeyRecord]:
        return await self._read_all(account, await self.ids(account))

    async def of_user(self, account: str, user: str) -> Sequence[KeyRecord]:
        """The keys of a user in an account, oldest first."""
        return await self._read_all(account, await self.ids(account, user))

    async def ids(self, account: str, user: str | None = None) -> Sequence[str]:
        """The ids of an account's keys, or of those of one user in it, in their `key_order`."""
        index = f"{slot(account)}:ks" if user is None else keys_of_user(account, user)
        return sorted(await scan_set(self._links.link(slot(account)), index), key=key_order)

    async def read(self, account: str, ids: Sequence[str]) -> Sequence[KeyRecord]:
        """The keys with these ids, in their order; ids of no key of the account are left out."""
        now = int((await self._links.link(slot(account)).call("TIME"))[0])
        found: list[KeyRecord | None] = []
        for start in range(0, len(ids), AT_ONCE):
            found += await asyncio.gather(*(self._read(account, one, now) for one in ids[start : start + AT_ONCE]))
        return [key for key in found if key is not None]

    async def _read_all(self, account: str, ids: Sequence[str]) -> Sequence[KeyRecord]:
        return sorted(await self.read(account, ids), key=lambda key: (key.created, key.id))

    async def show(self, key_id: str) -> KeyRecord:
        """One key; Refused if there is none."""
        found = await self._links.link(f"ki:{key_id}").call("GET", f"ki:{key_id}")
        record = await self._read(found.decode(), key_id) if found else None
        if record is None:
            raise Refused(f"no key {key_id!r}")
        return record

    async def revoke(self, key_id: str) -> KeyRecord:
        """Revoke a key permanently and at once; a second call changes nothing."""
        found = await self.find(key_id)
        if found is None:
            raise Refused(f"no key {key_id!r}")
        account = found.account
        await set_state(self._links, account, f"{slot(account)}:k:{key_id}", "revoked")
        await self._tell(found)
        record = await self._read(account, key_id)
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

    async def find(self, key_id: str) -> KeyRecord | None:
        """The key of this id, or None."""
        found = await self._links.link(f"ki:{key_id}").call("GET", f"ki:{key_id}")
        return await self._read(found.decode(), key_id) if found else None

    async def _read(self, account: str, key_id: str, now: int | None = None) -> KeyRecord | None:
        """The key; `now` is the store's time in seconds, which is asked for without it."""
        call = self._links.link(slot(account)).call
        if now is None:
            now = int((await call("TIME"))[0])
        fields = text_fields(await call("HGETALL", f"{slot(account)}:k:{key_id}"))
        if "state" not in fields:
            return None
        expires, scopes = _number(fields, "exp"), read_scopes(fields.get("scopes", ""))
        expired = fields["state"] == "active" and expires is not None and expires <= now
        return KeyRecord(
            key_id,
            account,
            fields.get("name", ""),
            fields["last4"],
            "expired" if expired else fields["state"],
            datetime.fromtimestamp(int(fields["created"]), UTC),
            datetime.fromtimestamp(expires, UTC) if expires is not None else None,
            _number(fields, "rpm"),
            _number(fields, "tpm"),
            _number(fields, "conc"),
            fields["models"].strip("\n").split("\n") if "models" in fields else None,
            _number(fields, "cap"),
            int(fields.get("spent", "0")),
            "cost" in fields,
            fields.get("every"),
            period_spent(fields, datetime.fromtimestamp(now, UTC)) if "cap" in fields else None,
            _number(fields, "max"),
            list(scopes.endpoints) or None,
            [str(network) for network in scopes.addresses] or None,
            datetime.fromtimestamp(int(fields["used"]), UTC) if "used" in fields else None,
            fields.get("user"),
        )


def keys_of_user(account: str, user: str) -> str:
    """The name of the set with the ids of a user's keys in an account."""
    return f"{slot(account)}:uk:{user}"


def _number(fields: dict[str, str], name: str) -> int | None:
    return int(fields[name]) if name in fields else None


def period_spent(fields: dict[str, str], now: datetime) -> int:
    """What counts against the budget in these stored fields: the spending of its period, or all without periods."""
    if "every" in fields:
        every: Every = msgspec.convert(fields["every"], Every)
        if fields.get("period") != period_of(every, now):
            return 0
    return int(fields.get("spent", "0")) - int(fields.get("base", "0"))
