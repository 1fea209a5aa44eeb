"""Writes the content of a store into a file of records: every account at one moment, then all other keys.

Other keys are read after the accounts. What belongs to a later state of an account is left out: a marker of a call that
is settled after the account was read, a key that was created then, and accounts of that time.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any, cast

from msgspec import Struct

from gateway.backup.account_export import KEY, PARTS, Export, export, export_lines
from gateway.backup.records import Kind, Part, RecordWriter
from gateway.history.trim_pause import PAUSED
from gateway.ledger.paging import scan_set
from gateway.ledger.store_audit import ACCOUNTS
from gateway.store import Store
from gateway.store.identity import IDENTITY, PROBE
from gateway.store.link import RedisLink

TOGETHER = 20  # accounts, or other keys of which any may be large, that are read at once
NAMES = 1000  # names per SCAN
ELEMENTS = 500  # of a large key per command

_OF_ACCOUNT = re.compile(r"\{a:([^}]*)\}(.*)", re.DOTALL)
_SCANS: dict[str, str] = {"hash": "HSCAN", "set": "SSCAN", "zset": "ZSCAN"}


class StoreCounts(Struct):
    """What is in the file."""

    accounts: int = 0
    keys: int = 0  # API keys
    lines: int = 0
    records: int = 0


class StoreDump:
    """One dump of one store."""

    def __init__(self, store: Store, writer: RecordWriter) -> None:
        self._store = store
        self._writer = writer
        self._exports: dict[str, tuple[tuple[int, int], frozenset[str]]] = {}  # last line and key ids, by account
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
        known = [name.encode() for name in self._exports]
        for start in range(0, len(known), ELEMENTS):
            self._writer.write(Part(ACCOUNTS, "set", list(known[start : start + ELEMENTS]), first=not start))
        for link in self._store.links:
            async for key in _names(link):
                for part in key:
                    self._writer.write(part) if self._belongs(part) else None
        self._counts.records = self._writer.records
        return self._counts

    async def _write_account(self, exported: Export) -> None:
        for part in exported.parts:
            self._writer.write(part)
        async for part in export_lines(self._store, exported):
            self._writer.write(part)
        self._exports[exported.account] = (_number(exported.last_id), exported.key_ids)
        self._counts.accounts += 1
        self._counts.keys += len(exported.key_ids)
        self._counts.lines += exported.lines

    def _belongs(self, part: Part) -> bool:
        """Whether a part of another key belongs to the state of the accounts in the file."""
        if match := _OF_ACCOUNT.fullmatch(part.key):
            exported = self._exports.get(match[1])
            if exported is None:
                return False
            if not match[2].startswith(":st:"):
                return True
            line = part.values[0].decode().split(" ")[2:]
            return not line or line[0] == "-" or _number(line[0]) <= exported[0]
        if part.key.startswith(("kh:", "ki:")):
            owner = part.values[0].decode()
            account, _, key_id = owner.partition(":") if part.key.startswith("kh:") else (owner, "", part.key[3:])
            exported = self._exports.get(account)
            return exported is not None and key_id.partition(":")[0] in exported[1]
        return True


async def _names(link: RedisLink) -> AsyncIterator[list[Part]]:
    """The parts of each other key of a server."""
    cursor: bytes | str = "0"
    while True:
        cursor, page = await link.call("SCAN", cursor, "COUNT", NAMES)
        names = [name for name in (key.decode() for key in page) if _is_other(name)]
        for start in range(0, len(names), TOGETHER):
            for parts in await asyncio.gather(*(_read(link, name) for name in names[start : start + TOGETHER])):
                yield parts
        if cursor == b"0":
            return


def _is_other(name: str) -> bool:
    """Whether the key is none of those that are read with its account, or made anew by a restore."""
    if match := _OF_ACCOUNT.fullmatch(name):
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
    pages = _stream(link, name) if kind == "stream" else _elements(link, name, _SCANS[kind])
    parts: list[Part] = []
    async for page in pages:
        parts.append(Part(name, kind, page, first=not parts, expires=expires))
    return parts


async def _elements(link: RedisLink, name: str, command: str) -> AsyncIterator[list[Any]]:
    cursor: bytes | str = "0"
    while True:
        cursor, page = await link.call(command, name, cursor, "COUNT", ELEMENTS)
        if page:
            yield page
        if cursor == b"0":
            return


async def _stream(link: RedisLink, name: str) -> AsyncIterator[list[Any]]:
    since = "-"
    while page := await link.call("XRANGE", name, since, "+", "COUNT", ELEMENTS):
        yield page
        since = "(" + page[-1][0].decode()


def _number(id_: str) -> tuple[int, int]:
    milliseconds, _, step = id_.partition("-")
    return int(milliseconds), int(step)
