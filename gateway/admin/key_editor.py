"""Changes of API keys: their settings, and their rotation. Amounts are nano-units."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Unpack

from msgspec import Struct

from gateway.accounts.accounts import Refused
from gateway.accounts.key_scopes import Scopes, networks
from gateway.accounts.key_settings import CLEARABLE, KeyLimits, check_key_name, key_fields
from gateway.accounts.keys import OWN, KeyRecord, Keys, NewKey
from gateway.errors import InvalidValue, NotFound
from gateway.ledger.periods import charged_in
from gateway.ledger.scripts import Links, load_script, slot
from gateway.store.command import text_fields

OK, UNBOUNDED = 0, 2  # codes of edit_key.lua
LONGEST_OVERLAP = timedelta(days=366)
#: Fields of the hash that a new key takes over from the one that it replaces.
INHERITED = ("name", "rpm", "tpm", "conc", "models", "cap", "every", "max", "scopes", "exp", "user")


class Rotated(Struct, frozen=True):
    """A rotation: the new key, and the old one, which expires."""

    new: NewKey
    old: KeyRecord


class KeyEditor:
    """Edits and rotates keys."""

    def __init__(self, links: Links, keys: Keys) -> None:
        self._links = links
        self._keys = keys
        self._edit, self._count = load_script("edit_key"), load_script("count_budget")

    async def show(self, key_id: str) -> KeyRecord:
        """One key; NotFound if there is none."""
        try:
            return await self._keys.show(key_id)
        except Refused as error:
            raise NotFound(str(error)) from None

    async def edit(
        self, key_id: str, *, name: str | None = None, clear: Collection[str] = (), **limits: Unpack[KeyLimits]
    ) -> KeyRecord:
        """Set `limits` and remove those named by `clear`; all or none is changed.

        The settings hold for the next call of the key. A period counts what the key was charged in it before, as far as
        its ledger lines are in the store. NotFound: no such key. InvalidValue: a value is not possible.
        """
        key = await self.show(key_id)
        account = slot(key.account)
        link = self._links.link(account)
        now = int((await link.call("TIME"))[0])
        fields = _changes(key, name, limits, clear, now=now)
        pairs = [word for pair in fields.items() for word in pair]
        code, text, period = await link.eval(self._edit, [account], [key_id, *pairs])
        if code == UNBOUNDED:
            raise InvalidValue("a period needs a budget")
        if code != OK:
            raise NotFound(f"no key {key_id!r}")
        if text:
            until, name_of_period = text.decode(), period.decode()
            charged = await charged_in(self._links, key.account, name_of_period, until=until, key_id=key_id)
            await link.eval(self._count, [account], [f"k:{key_id}", name_of_period, until, charged])
        return await self.show(key_id)

    async def rotate(self, key_id: str, *, overlap: timedelta) -> Rotated:
        """Make a new key with the settings of an active one, which expires after `overlap`, by the store's clock.

        What the old key has spent of its budget counts against the budget of the new one. During the overlap each of
        the two may spend what was left at the rotation.
        """
        old = await self.show(key_id)
        if old.state != "active":
            raise InvalidValue(f"key {key_id!r} is {old.state}; create a new one")
        if not timedelta() <= overlap <= LONGEST_OVERLAP:
            raise InvalidValue(f"an overlap is at most {LONGEST_OVERLAP.days} days")
        account = slot(old.account)
        name, call = f"{account}:k:{key_id}", self._links.link(account).call
        stored, now = text_fields(await call("HGETALL", name)), int((await call("TIME"))[0])
        values: dict[str, str | int] = {"state": "active", "created": now}
        values |= {field: stored[field] for field in INHERITED if field in stored}
        if old.period_spent:
            values["base"] = -old.period_spent
        if old.every is not None:
            values["period"] = stored.get("period", "")
        if values.keys() & OWN:
            values["own"] = 1
        new = await self._keys.store(old.account, values, show_cost=old.show_cost)
        ends = now + int(overlap.total_seconds())
        if old.expires is None or ends < old.expires.timestamp():
            await call("HSET", name, "exp", ends)
        after = await self.show(key_id)
        if after.state in ("revoked", "disabled"):  # meanwhile, by someone who did not know the new key
            await self._keys.revoke(new.id)
            raise InvalidValue(f"key {key_id!r} is {after.state}; create a new one")
        return Rotated(new, after)

    async def unused(self, account: str | None, since: datetime) -> list[KeyRecord]:
        """Active keys of one account, or of all, that were made before `since` and not used since then.

        The last use is noted once an hour. A key that was not used since an older version counts from its creation.
        """
        moment = since.astimezone(UTC)
        return [key for key in await self.list(account) if is_unused(key, moment)]

    async def list(self, account: str | None) -> list[KeyRecord]:
        """The keys of one account, or of all, oldest first; NotFound for an unknown account."""
        try:
            return await self._keys.list(account)
        except Refused as error:
            raise NotFound(str(error)) from None


def is_unused(key: KeyRecord, since: datetime) -> bool:
    """Whether it is an active key that was made before `since` and not used since then."""
    return key.state == "active" and (key.last_used or key.created) < since


def _changes(
    key: KeyRecord, name: str | None, limits: KeyLimits, clear: Collection[str], *, now: int
) -> dict[str, str | int]:
    """The fields to change in the key's hash; "" removes one."""
    given = {setting for setting, value in limits.items() if value is not None}
    for setting in clear:
        if setting not in CLEARABLE:
            raise InvalidValue(f"{setting!r} is nothing to clear; known: {', '.join(CLEARABLE)}")
        if setting in given:
            raise InvalidValue(f"{setting} cannot be set and cleared at once")
    kept = Scopes(
        () if "endpoints" in clear else tuple(key.endpoints or ()),
        () if "addresses" in clear else networks(key.addresses or ()),
    )
    try:
        if name is not None:
            check_key_name(name)
        fields = key_fields(limits, now=now, scopes=kept.text())
    except Refused as error:
        raise InvalidValue(str(error)) from None
    if name is not None:
        fields["name"] = name
    for setting in clear:
        if CLEARABLE[setting] != "scopes":
            fields[CLEARABLE[setting]] = ""
        else:
            fields.setdefault("scopes", kept.text())
    if "budget" in clear:
        fields.setdefault("every", "")
    return fields
