"""Reads everything of one account at one moment, while it is used.

One script returns what changes; ledger, operations and refunds only grow. The ledger is read in pages, up to the line
that the script has named. Operations, refunds and keys are returned by the script if there are few. Many are read in
pages before it. If there are more operations or refunds by then, or if a line or a hold may have changed a key, the
account is read again. After `TRIES`, or if it has many keys and running calls, the script returns everything: the store
waits meanwhile, 0.7 s for 100,000 keys.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from msgspec import Struct, structs

from gateway.accounts.stored_fields import hash_pairs
from gateway.backup import BackupError
from gateway.backup.records import Part
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.paging import scan_pairs
from gateway.ledger.scripts import load_script
from gateway.store.link import RedisLink
from gateway.store.links import Links, slot

TRIES = 3
PAGE = 500  # lines per read, and fields per part
KEYS_TOGETHER = 2_000  # API keys that the script returns, in some 15 ms
ALL = 10**15
#: Ends of the names of keys that `export` reads, beside those of API keys and of members with API keys.
PARTS = ("", ":ca", ":rv", ":rx", ":ks", ":op", ":rf", ":lg")
KEY, MEMBER = ":k:", ":u:"
ORDERS = re.compile(r":(?:ks|uk:.*):o", re.DOTALL)  # ends of names of what is made anew, see `ordered_set`
#: The name of a key of an account: the account, and the end of the name.
OF_ACCOUNT = re.compile(r"\{a:([^}]*)\}(.*)", re.DOTALL)

_script = load_script("export")


class Export(Struct):
    """An account at one moment."""

    account: str
    last_id: str  # of its last ledger line; "0-0" for none
    lines: int  # that are to be in the store
    key_ids: frozenset[str]
    users: frozenset[str]  # ids of the members with API keys
    parts: list[Part]  # without the ledger


class _Found(Struct, frozen=True):
    """The reply of the script."""

    operations: int
    refunds: int
    last: bytes
    head: list[bytes]
    checkpoint: list[bytes]
    holds: list[bytes]
    expiries: list[bytes]
    ids: list[bytes]
    keys: list[Any]  # id, hash, …; none of them if there are more than KEYS_TOGETHER
    members: list[Any]  # user, hash, …
    operation_fields: list[bytes]
    refund_fields: list[bytes]

    @property
    def has_many_operations(self) -> bool:
        return max(self.operations, self.refunds) > PAGE

    @property
    def has_many_keys(self) -> bool:
        return len(self.ids) > KEYS_TOGETHER


async def export(links: Links, account: str) -> Export | None:
    """The account; None if only the index has its name."""
    name = slot(account)
    link = links.link(name)
    found = _Found(*await link.eval(_script, [name], [PAGE, KEYS_TOGETHER]))
    for _ in range(TRIES):
        if not (found.has_many_operations or found.has_many_keys):
            return _export(account, found)
        if found.has_many_keys and found.holds:
            break  # calls of the account run: its keys change meanwhile
        pages = await _left_out(link, name, found)
        before, found = found, _Found(*await link.eval(_script, [name], [PAGE, KEYS_TOGETHER]))
        if _is_of_moment(pages, before, found):
            return _export(account, structs.replace(found, **pages))
    return _export(account, _Found(*await link.eval(_script, [name], [ALL, ALL])))


async def _left_out(link: RedisLink, name: str, found: _Found) -> dict[str, list[Any]]:
    """The fields of `found` that the script has left out, read in pages."""
    pages: dict[str, list[Any]] = {}
    if found.has_many_operations:
        pages["operation_fields"] = _flat(await scan_pairs(link, f"{name}:op"))
        pages["refund_fields"] = _flat(await scan_pairs(link, f"{name}:rf"))
    if found.has_many_keys:
        keys = await _hashes(link, f"{name}{KEY}", found.ids)
        users = {user for fields in keys.values() if (user := fields.get(b"user")) is not None}
        pages["keys"] = _at_rest(keys)
        pages["members"] = _at_rest(await _hashes(link, f"{name}{MEMBER}", sorted(users)))
    return pages


def _is_of_moment(pages: Mapping[str, list[Any]], before: _Found, after: _Found) -> bool:
    """Whether the pages, which were read between the two replies, are also those of the moment of `after`.

    The money of keys and members changes with a ledger line or a hold only.
    """
    if after.has_many_operations:
        sizes = len(pages.get("operation_fields", ())), len(pages.get("refund_fields", ()))
        if sizes != (2 * after.operations, 2 * after.refunds):
            return False
    if not (before.has_many_keys or after.has_many_keys):
        return True
    is_same = (before.last, before.head, sorted(before.ids)) == (after.last, after.head, sorted(after.ids))
    return is_same and not after.holds


async def _hashes(link: RedisLink, prefix: str, names: Sequence[bytes]) -> dict[bytes, dict[bytes, bytes]]:
    replies = await gather_bounded(link.call("HGETALL", prefix + name.decode()) for name in names)
    return {name: dict(hash_pairs(reply)) for name, reply in zip(names, replies, strict=True)}


def _at_rest(hashes: dict[bytes, dict[bytes, bytes]]) -> list[Any]:
    """The hashes as the script returns them, and nothing is held: a hold may have begun and ended meanwhile."""
    return [
        part
        for name, fields in hashes.items()
        for part in (name, _flat(fields | ({b"held": b"0"} if b"held" in fields else {})))
    ]


def _export(account: str, found: _Found) -> Export | None:
    if not found.head:
        return None
    name = slot(account)
    parts = [Part(name, "hash", found.head)]
    parts += _chunks(f"{name}:ca", "hash", found.checkpoint) + _chunks(f"{name}:rv", "hash", found.holds)
    parts += _chunks(f"{name}:rx", "zset", found.expiries) + _chunks(f"{name}:ks", "set", found.ids)
    for key_id, fields in zip(found.keys[::2], found.keys[1::2], strict=True):
        parts += _chunks(f"{name}{KEY}{key_id.decode()}", "hash", fields)
    for user, fields in zip(found.members[::2], found.members[1::2], strict=True):
        parts += _chunks(f"{name}{MEMBER}{user.decode()}", "hash", fields)
    parts += _chunks(f"{name}:op", "hash", found.operation_fields) + _chunks(f"{name}:rf", "hash", found.refund_fields)
    lines = int(_field(found.head, b"seq")) - int(_field(found.checkpoint, b"n"))
    key_ids, users = frozenset(map(bytes.decode, found.ids)), frozenset(map(bytes.decode, found.members[::2]))
    return Export(account, found.last.decode() or "0-0", lines, key_ids, users, parts)


def _flat(pairs: Mapping[bytes, bytes]) -> list[bytes]:
    return [part for pair in pairs.items() for part in pair]


async def line_page(links: Links, exported: Export, since: str = "-") -> list[Any]:
    """Ledger lines up to the moment of the export; none if there are to be none."""
    if not exported.lines:
        return []
    name = f"{slot(exported.account)}:lg"
    found: list[Any] = await links.link(name).call("XRANGE", name, since, exported.last_id, "COUNT", PAGE)
    return found


async def export_lines(links: Links, exported: Export, page: list[Any]) -> AsyncIterator[Part]:
    """The account's ledger up to the moment of the export, of which `page` is the first page.

    BackupError if lines are missing.
    """
    name = f"{slot(exported.account)}:lg"
    found = 0
    while page:
        yield Part(name, "stream", page, first=not found)
        found += len(page)
        page = await line_page(links, exported, "(" + page[-1][0].decode()) if found < exported.lines else []
    if found != exported.lines:
        raise BackupError(
            f"account {exported.account} has {found} ledger lines in the store instead of {exported.lines};"
            " see `gateway audit`"
        )


def _chunks(key: str, kind: Any, values: list[Any]) -> list[Part]:
    size = 2 * PAGE
    return [Part(key, kind, values[at : at + size], first=not at) for at in range(0, len(values), size)]


def _field(flat: list[bytes], name: bytes) -> bytes:
    return dict(zip(flat[::2], flat[1::2], strict=True)).get(name, b"0")
