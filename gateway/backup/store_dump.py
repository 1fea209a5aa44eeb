"""Writes the content of a store into a file of records: every account at one moment, then all other keys.

Other keys are read after the accounts. What belongs to a later state of an account is left out: a marker of a call that
is settled after the account was read, a key that was created then, what a member without a key has spent since, and
accounts of that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

from msgspec import Struct

from gateway.backup.account_export import KEY, MEMBER, OF_ACCOUNT, PARTS, Export, export, export_lines
from gateway.backup.records import Kind, Part, RecordWriter
from gateway.history.trim_pause import PAUSED
from gateway.ledger.paging import scan_pages, scan_set
from gateway.ledger.store_audit import ACCOUNTS
from gateway.store import Store
from gateway.store.identity import IDENTITY, PROBE
from gateway.store.link import RedisLink

TOGETHER = 20  # accounts, or other keys of which any may be large, that are read at once
NAMES = 1000  # names per SCAN
ELEMENTS = 500  # of a large key per command
SPENDING = frozenset({b"spent", b"held", b"base"})  # fields of a member

_SCANS: dict[str, str] = {"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}


class StoreCounts(Struct):
    """What is in the file."""

    accounts: int = 0
    keys: int = 0  # API keys
    lines: int = 0
    records: int = 0


class _Written(Struct, frozen=True):
    """What of an account is in the file."""

    last: tuple[int, int]  # id of the last ledger line
    key_ids: frozenset[str]
    users: frozenset[str]


class StoreDump:
    """One dump of one store."""

    def __init__(self, store: Store, writer: RecordWriter) -> None:
        self._store = store
        self._writer = writer
        self._accounts: dict[str, _Written] = {}
        self._counts = StoreCounts()

    async def run(self) -> StoreCounts:
        """Write everything. BackupError if an account cannot be read, StoreUnavailable if a server is away."""
        names = sorted(await scan_set(self._store.link(ACCOUNTS), ACCOUNTS))
        for start in range(0, len(names), TOGETHER):
            for exported in await asyncio.gather(
                *(export(self._store, name) for name in names[start : start + TOGETHER])
            ):
                if exported is not None:
                    await self._write_account(exported)
        known = [name.encode() for name in self._accounts]
        for start in range(0, len(known), ELEMENTS):
            self._writer.write(Part(ACCOUNTS, "set", list(known[start : start + ELEMENTS]), first=not start))
        for link in self._store.links:
            async for parts in _other_keys(link):
                for part in filter(self._belongs, parts):
                    self._writer.write(part)
        self._counts.records = self._writer.records
        return self._counts

    async def _write_account(self, exported: Export) -> None:
        for part in exported.parts:
            self._writer.write(part)
        async for part in export_lines(self._store, exported):
            self._writer.write(part)
        self._accounts[exported.account] = _Written(_number(exported.last_id), exported.key_ids, exported.users)
        self._counts.accounts += 1
        self._counts.keys += len(exported.key_ids)
        self._counts.lines += exported.lines

    def _belongs(self, part: Part) -> bool:
        """Whether a part of another key belongs to the state of the accounts in the file."""
        if match := OF_ACCOUNT.fullmatch(part.key):
            written = self._accounts.get(match[1])
            if written is None:
                return False
            if match[2].startswith(MEMBER):
                return match[2].removeprefix(MEMBER) not in written.users and bool(part.values)
            if not match[2].startswith(":st:"):
                return True
            line = part.values[0].decode().split(" ")[2:]
            return not line or line[0] == "-" or _number(line[0]) <= written.last
        if part.key.startswith(("kh:", "ki:")):
            owner = part.values[0].decode()
            account, _, key_id = owner.partition(":") if part.key.startswith("kh:") else (owner, "", part.key[3:])
            written = self._accounts.get(account)
            return written is not None and key_id.partition(":")[0] in written.key_ids
        return True


async def _other_keys(link: RedisLink) -> AsyncIterator[list[Part]]:
    """The parts of each other key of a server."""
    async for page in scan_pages(link, "SCAN", count=NAMES):
        names = [name for name in (key.decode() for key in page) if _is_other(name)]
        for start in range(0, len(names), TOGETHER):
            for parts in await asyncio.gather(*(_read(link, name) for name in names[start : start + TOGETHER])):
                yield parts


def _is_other(name: str) -> bool:
    """Whether the key is none of those that are read with its account, or made anew by a restore."""
    if match := OF_ACCOUNT.fullmatch(name):
        return match[2] not in PARTS and not match[2].startswith(KEY)
    return name not in (ACCOUNTS, PAUSED) and not name.startswith((IDENTITY, PROBE))


async def _read(link: RedisLink, name: str) -> list[Part]:
    """All parts of a key; none if it has expired meanwhile."""
    found, until = await asyncio.gather(link.call("TYPE", name), link.call("PEXPIRETIME", name))
    kind = cast(Kind, found if isinstance(found, str) else found.decode())
    if kind not in ("string", "stream", *_SCANS) or until == -2:
        return []
    expires = max(0, until)
    if kind == "string":
        value = await link.call("GET", name)
        return [] if value is None else [Part(name, kind, [value], expires=expires)]
    pages = _stream(link, name) if kind == "stream" else scan_pages(link, _SCANS[kind], name, count=ELEMENTS)
    match = OF_ACCOUNT.fullmatch(name)
    is_member = match is not None and match[2].startswith(MEMBER)
    parts: list[Part] = []
    async for page in pages:
        values = _without_spending(page) if is_member else page
        parts.append(Part(name, kind, values, first=not parts, expires=expires))
    return parts


async def _stream(link: RedisLink, name: str) -> AsyncIterator[list[Any]]:
    since = "-"
    while page := await link.call("XRANGE", name, since, "+", "COUNT", ELEMENTS):
        yield page
        since = "(" + page[-1][0].decode()


def _without_spending(fields: list[bytes]) -> list[bytes]:
    """The budget of a member who had no key when the account was read, and so had spent nothing."""
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return [value for name, amount in pairs if name not in SPENDING for value in (name, amount)]


def _number(id_: str) -> tuple[int, int]:
    milliseconds, _, step = id_.partition("-")
    return int(milliseconds), int(step)
