"""Changes of stored API keys: their settings, and their rotation. Amounts are nano-units."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from typing import Unpack

from gateway.accounts.key_record import KeyRecord, Rotated, key_record
from gateway.accounts.key_scopes import Scopes, networks
from gateway.accounts.key_settings import CLEARABLE, KEY_SETTINGS, OWN, KeyLimits, check_key_name, key_fields, passed
from gateway.accounts.keys import Keys
from gateway.accounts.stored_fields import StoredFields, hash_pairs
from gateway.errors import InvalidValue, NotFound
from gateway.ledger.periods import charged_in
from gateway.ledger.scripts import load_script
from gateway.store.command import text_fields
from gateway.store.links import Links, slot

OK, UNBOUNDED, PASSED = 0, 2, 3  # codes of edit_key.lua
LONGEST_OVERLAP = timedelta(days=366)
#: Fields of the hash that a new key takes over from the one that it replaces.
INHERITED = ("name", "user", *dict.fromkeys(setting.field for setting in KEY_SETTINGS))


class KeyEdits:
    """Edits and rotates keys."""

    def __init__(self, links: Links, keys: Keys) -> None:
        self._links = links
        self._keys = keys
        self._edit, self._count = load_script("edit_key"), load_script("count_budget")

    async def edit(
        self, key: KeyRecord, *, name: str | None = None, clear: Collection[str] = (), **limits: Unpack[KeyLimits]
    ) -> KeyRecord:
        """Set `limits` of a key as it was just read, and remove those named by `clear`; all or none is changed.

        The settings hold for the next call of the key. A period counts what the key was charged in it before, as far as
        its ledger lines are in the store. NotFound: no such key. InvalidValue: a value is not possible.
        """
        account = slot(key.account)
        link = self._links.link(account)
        fields = _changes(key, name, limits, clear)
        pairs = [word for pair in fields.items() for word in pair]
        code, text, period, now, stored = await link.eval(
            self._edit, [account], [key.id, " ".join(sorted(OWN)), *pairs]
        )
        if code == UNBOUNDED:
            raise InvalidValue("a period needs a budget")
        if code == PASSED:
            raise passed(int(fields["exp"]))
        if code != OK:
            raise NotFound(f"no key {key.id!r}")
        if text:
            until, name_of_period = text.decode(), period.decode()
            charged = await charged_in(self._links, key.account, name_of_period, until=until, key_id=key.id)
            await link.eval(self._count, [account], [f"k:{key.id}", name_of_period, until, charged])
            return await self._keys.show(key.id)
        return key_record(key.account, key.id, StoredFields(hash_pairs(stored)), int(now))

    async def rotate(self, account: str, key_id: str, *, overlap: timedelta) -> Rotated:
        """Make a new key with the settings of an active one, which expires after `overlap`, by the store's clock.

        What the old key has spent of its budget counts against the budget of the new one. During the overlap each of
        the two may spend what was left at the rotation.
        """
        if not timedelta() <= overlap <= LONGEST_OVERLAP:
            raise InvalidValue(f"an overlap is at most {LONGEST_OVERLAP.days} days")
        name, call = f"{slot(account)}:k:{key_id}", self._links.link(slot(account)).call
        reply, now = await call("HGETALL", name), int((await call("TIME"))[0])
        stored, old = text_fields(reply), key_record(account, key_id, StoredFields(hash_pairs(reply)), now)
        if old.state != "active":
            raise InvalidValue(f"key {key_id!r} is {old.state or 'gone'}; create a new one")
        values: dict[str, str | int] = {"state": "active", "created": now}
        values |= {field: stored[field] for field in INHERITED if field in stored}
        if old.period_spent:
            values["base"] = -old.period_spent
        if old.every is not None:
            values["period"] = stored.get("period", "")
        if values.keys() & OWN:
            values["own"] = 1
        new = await self._keys.store(account, values, show_cost=old.show_cost)
        ends = now + int(overlap.total_seconds())
        if old.expires is None or ends < old.expires.timestamp():
            await call("HSET", name, "exp", ends)
        after = await self._keys.show(key_id)
        if after.state in ("revoked", "disabled"):  # meanwhile, by someone who did not know the new key
            await self._keys.revoke(new.id)
            raise InvalidValue(f"key {key_id!r} is {after.state}; create a new one")
        return Rotated(new, after)


def _changes(key: KeyRecord, name: str | None, limits: KeyLimits, clear: Collection[str]) -> dict[str, str | int]:
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
    if name is not None:
        check_key_name(name)
    fields = key_fields(limits, scopes=kept.text())
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
