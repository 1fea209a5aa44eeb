"""Reads an account that is too large for one script, while it is used, so that all of it is of one moment.

Keys and members, operations, refunds and the archive checkpoint are read in pages first. A ledger line and a hold name
the key whose money they change. So the keys that newer lines name are read again, until there are few such lines. Then
one script returns what is left, and the keys of the last lines and of the running calls: this is the moment. What
nobody has used since it was read is as it was, and holds nothing. Each round reads what changed during the one before,
so it ends while the account is used. Sharp edge: a key that is made or edited meanwhile, and makes no call, may be in
the backup or not, and as it was before or after.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
from msgspec import Struct, structs

from gateway.accounts.stored_fields import hash_pairs
from gateway.backup import BackupError
from gateway.ledger.compact_meta import expanded
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.paging import scan_pages, scan_pairs
from gateway.ledger.scripts import load_script
from gateway.store.link import RedisLink

TRIES = 3  # for operations and refunds, which are then read by the script
ROUNDS = 1_000
PAGE = 500  # lines per read, and fields per part
LINES = 500  # whose keys the script reads, in some 10 ms
KEYS_TOGETHER = 2_000  # API keys that the script returns of an account without pages, in some 15 ms
ALL = 10**15
KEY, MEMBER = ":k:", ":u:"

Fields = dict[bytes, bytes]
Hashes = dict[bytes, list[bytes]]  # flat, by id

_script = load_script("export")


class _LineKey(Struct):
    key: str = ""


_line_key = msgspec.json.Decoder(_LineKey)


class StoredAccount(Struct, frozen=True):
    """The reply of the script."""

    operations: int
    refunds: int
    key_count: int
    checkpoint_fields: int
    last: bytes
    head: list[bytes]
    checkpoint: list[bytes]  # its line only if there are more than KEYS_TOGETHER fields
    holds: list[bytes]
    expiries: list[bytes]
    ids: list[bytes]  # none if there are more than KEYS_TOGETHER
    keys: list[Any]  # id, hash, …; those of `ids`, or those that have changed
    members: list[Any]  # user, hash, …
    operation_fields: list[bytes]
    refund_fields: list[bytes]
    lines: list[Any]

    @property
    def has_many_operations(self) -> bool:
        return max(self.operations, self.refunds) > PAGE

    @property
    def has_many_keys(self) -> bool:
        return self.key_count > KEYS_TOGETHER

    @property
    def has_long_checkpoint(self) -> bool:
        return self.checkpoint_fields > KEYS_TOGETHER

    @property
    def is_large(self) -> bool:
        """Whether the script has left something out."""
        return self.has_many_operations or self.has_many_keys or self.has_long_checkpoint


async def read_account(link: RedisLink, name: str) -> StoredAccount:
    """All of an account at one moment; its head is empty if there is none. `name` is that of its hash."""
    found = await _read(link, name)
    return await _Pages(link, name, found).read() if found.is_large else found


async def _read(link: RedisLink, name: str, *, since: bytes = b"", most: int = PAGE) -> StoredAccount:
    return StoredAccount(*await link.eval(_script, [name], [most, KEYS_TOGETHER, since, LINES]))


class _Pages:
    """What was read of an account in pages."""

    def __init__(self, link: RedisLink, name: str, found: StoredAccount) -> None:
        self._link = link
        self._name = name
        self._before = found
        self._since = found.last or b"0-0"  # the line up to which `_keys` is known to be right
        self._keys: Hashes | None = None  # None before they are read
        self._members: Hashes = {}
        self._operations: tuple[Fields, Fields] | None = None  # and the refunds; None if they are to be read
        self._checkpoint: Fields | None = None  # the same
        self._missed = 0

    async def read(self) -> StoredAccount:
        """The account at the moment of the last script. BackupError if there is none within `ROUNDS`."""
        for _ in range(ROUNDS):
            await self._read_others()
            if self._before.has_many_keys and await self._catch_up() > LINES:
                continue
            most = PAGE if self._missed < TRIES else ALL
            self._before = found = await _read(self._link, self._name, since=self._since, most=most)
            if not found.head:
                return found
            if self._is_whole(found, has_operations=most == ALL):
                return self._whole(found, has_operations=most == ALL)
        raise BackupError(f"account {self._name[len('{a:') : -1]} changes faster than it can be read")

    async def _read_others(self) -> None:
        if self._before.has_many_operations and self._operations is None:
            operations = await scan_pairs(self._link, f"{self._name}:op")
            self._operations = operations, await scan_pairs(self._link, f"{self._name}:rf")
        if self._before.has_long_checkpoint and self._checkpoint is None:
            self._checkpoint = await scan_pairs(self._link, f"{self._name}:ca")

    async def _catch_up(self) -> int:
        """Read the keys that new lines name, all keys at first. Returns how many new lines there were."""
        if self._keys is None:
            self._keys = {}
            async for page in scan_pages(self._link, "SSCAN", f"{self._name}:ks"):
                self._keys |= {id_: [] for id_ in page}
                await self._read_keys(page)
            await self._read_keys([id_ for id_, fields in self._keys.items() if not fields])  # they were just made
        ids, count, is_last = set[bytes](), 0, False
        while not is_last:
            page = await self._link.call("XRANGE", f"{self._name}:lg", b"(" + self._since, "+", "COUNT", PAGE)
            ids |= _owners(page)
            count += len(page)
            self._since = page[-1][0] if page else self._since
            is_last = len(page) < PAGE  # there may be new ones already
        await self._read_keys(ids)
        return count

    async def _read_keys(self, ids: Iterable[bytes]) -> None:
        keys = await _hashes(self._link, f"{self._name}{KEY}", ids)
        users = {user for fields in keys.values() if (user := _field(fields, b"user")) is not None}
        self._keys = self._with(keys)
        self._members |= await _hashes(self._link, f"{self._name}{MEMBER}", users)

    def _with(self, keys: Hashes) -> Hashes:
        """The keys and these; a key without a hash that is not in the account's set is none."""
        known = self._keys or {}
        known.update((id_, fields) for id_, fields in keys.items() if fields or id_ in known)
        return known

    # The moment ------------------------------------------------------------------------------------------------------

    def _is_whole(self, found: StoredAccount, *, has_operations: bool) -> bool:
        """Whether the pages are those of the moment, too; what is not is read again."""
        is_whole = True
        if found.has_many_operations and not has_operations:  # both hashes only grow
            sizes = None if self._operations is None else tuple(map(len, self._operations))
            if sizes != (found.operations, found.refunds):
                self._operations, is_whole = None, False
                self._missed += 1
        if found.has_long_checkpoint:
            line = zip(found.checkpoint[::2], found.checkpoint[1::2], strict=True)
            if self._checkpoint is None or any(self._checkpoint.get(name) != value for name, value in line):
                self._checkpoint, is_whole = None, False
        if found.has_many_keys:
            is_near = self._keys is not None and len(found.lines) <= LINES
            is_whole = is_whole and is_near and _owners(found.lines) <= set(found.keys[::2])
        return is_whole

    def _whole(self, found: StoredAccount, *, has_operations: bool) -> StoredAccount:
        """The reply with what it left out."""
        left_out: dict[str, list[Any]] = {}
        if found.has_many_operations and not has_operations and self._operations is not None:
            left_out["operation_fields"], left_out["refund_fields"] = map(_flat, self._operations)
        if found.has_long_checkpoint and self._checkpoint is not None:
            left_out["checkpoint"] = _flat(self._checkpoint)
        if found.has_many_keys and self._keys is not None:
            self._keys = _at_rest(self._keys)
            keys = self._with(_by_id(found.keys))
            left_out["ids"], left_out["keys"] = list(keys), _flat(keys)
            left_out["members"] = _flat(_at_rest(self._members) | _by_id(found.members))
        return structs.replace(found, **left_out)


async def _hashes(link: RedisLink, prefix: str, ids: Iterable[bytes]) -> Hashes:
    names = list(ids)
    replies = await gather_bounded(link.call("HGETALL", prefix + name.decode()) for name in names)
    return {name: _flat(dict(hash_pairs(reply))) for name, reply in zip(names, replies, strict=True)}


def _owners(lines: Iterable[Any]) -> set[bytes]:
    """The ids of the keys that these lines name; an unreadable line, which the audit reports, names none."""
    found = set[bytes]()
    for _, fields in lines:
        for name, value in zip(fields[::2], fields[1::2], strict=True):
            if name == b"meta" and value:
                try:
                    found.add(_line_key.decode(expanded(value.decode())).key.encode())
                except ValueError:
                    continue
    found.discard(b"")
    return found


def _at_rest(hashes: Hashes) -> Hashes:
    """The hashes of what no running call uses: nothing is held, but a hold may have begun and ended meanwhile."""
    return {name: _without_hold(fields) for name, fields in hashes.items()}


def _without_hold(fields: list[bytes]) -> list[bytes]:
    if b"held" not in fields[::2]:
        return fields
    at = 2 * fields[::2].index(b"held") + 1
    return [*fields[:at], b"0", *fields[at + 1 :]]


def _field(fields: list[bytes], name: bytes) -> bytes | None:
    return fields[2 * fields[::2].index(name) + 1] if name in fields[::2] else None


def _by_id(pairs: list[Any]) -> Hashes:
    return dict(zip(pairs[::2], pairs[1::2], strict=True))


def _flat(pairs: Mapping[bytes, Any]) -> list[Any]:
    return [part for pair in pairs.items() for part in pair]
