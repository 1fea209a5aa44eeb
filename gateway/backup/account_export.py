"""What a backup has of one account, read at one moment, while the account is used: everything but the ledger.

The ledger only grows. It is read in pages afterwards, up to the line that was the last one at the moment.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Any

from msgspec import Struct

from gateway.backup import BackupError
from gateway.backup.account_pages import KEY, MEMBER, PAGE, StoredAccount, read_account
from gateway.backup.records import Part
from gateway.store.links import Links, slot

#: Ends of the names of keys that `export` reads, beside those of API keys and of members with API keys.
PARTS = ("", ":ca", ":rv", ":rx", ":ks", ":op", ":rf", ":lg")
ORDERS = re.compile(r":(?:ks|uk:.*):o", re.DOTALL)  # ends of names of what is made anew, see `ordered_set`
#: The name of a key of an account: the account, and the end of the name.
OF_ACCOUNT = re.compile(r"\{a:([^}]*)\}(.*)", re.DOTALL)


class Export(Struct):
    """An account at one moment."""

    account: str
    last_id: str  # of its last ledger line; "0-0" for none
    lines: int  # that are to be in the store
    key_ids: frozenset[str]
    users: frozenset[str]  # ids of the members with API keys
    parts: list[Part]  # without the ledger


async def export(links: Links, account: str) -> Export | None:
    """The account; None if only the index has its name. BackupError if it changes faster than it can be read."""
    name = slot(account)
    return _export(account, await read_account(links.link(name), name))


def _export(account: str, found: StoredAccount) -> Export | None:
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
