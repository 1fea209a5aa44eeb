"""Reads everything of one account at one moment, while it is used.

One script returns what changes; ledger, operations and refunds only grow. The ledger is read in pages, up to the line
that the script has named. Operations and refunds are returned by the script if there are few. Many are read in pages
before it, and it says how many there are. If there are more by then, the account is read again. After `TRIES` the
script returns all of them: the store waits meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from gateway.backup import BackupError
from gateway.backup.records import Part
from gateway.ledger.paging import scan_pairs
from gateway.ledger.scripts import load_script
from gateway.store.links import Links, slot

TRIES = 3
PAGE = 500  # lines per read, and fields per part
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


async def export(links: Links, account: str) -> Export | None:
    """The account; None if only the index has its name."""
    name = slot(account)
    link = links.link(name)
    counted, refunded, *rest = await link.eval(_script, [name], [PAGE])
    if max(counted, refunded) <= PAGE:
        return _export(account, *rest)
    for _ in range(TRIES):
        operations, refunds = [_flat(await scan_pairs(link, name + end)) for end in (":op", ":rf")]
        counted, refunded, *rest = await link.eval(_script, [name], [0])
        if 2 * counted == len(operations) and 2 * refunded == len(refunds):
            return _export(account, *rest[:-2], operations, refunds)
    _, _, *rest = await link.eval(_script, [name], [ALL])
    return _export(account, *rest)


def _export(account: str, last: bytes, head: list[bytes], *rest: list[Any]) -> Export | None:
    if not head:
        return None
    name = slot(account)
    checkpoint, holds, expiries, ids, keys, members, operations, refunds = rest
    parts = [Part(name, "hash", head)]
    parts += _chunks(f"{name}:ca", "hash", checkpoint) + _chunks(f"{name}:rv", "hash", holds)
    parts += _chunks(f"{name}:rx", "zset", expiries) + _chunks(f"{name}:ks", "set", ids)
    for key_id, fields in zip(keys[::2], keys[1::2], strict=True):
        parts += _chunks(f"{name}{KEY}{key_id.decode()}", "hash", fields)
    for user, fields in zip(members[::2], members[1::2], strict=True):
        parts += _chunks(f"{name}{MEMBER}{user.decode()}", "hash", fields)
    parts += _chunks(f"{name}:op", "hash", operations) + _chunks(f"{name}:rf", "hash", refunds)
    lines = int(_field(head, b"seq")) - int(_field(checkpoint, b"n"))
    key_ids, users = frozenset(map(bytes.decode, ids)), frozenset(map(bytes.decode, members[::2]))
    return Export(account, last.decode() or "0-0", lines, key_ids, users, parts)


def _flat(pairs: dict[bytes, bytes]) -> list[bytes]:
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
