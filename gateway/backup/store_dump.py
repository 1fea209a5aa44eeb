"""Writes the content of a store into a file of records: every account at one moment, then all other keys.

Other keys are read after the accounts. What belongs to a later state of an account is left out: a marker of a call that
is settled after the account was read, a key that was created then, what a member without a key has spent since, and
accounts of that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

from msgspec import Struct

from gateway.backup import BackupError
from gateway.backup.account_export import (
    KEY,
    MEMBER,
    OF_ACCOUNT,
    ORDERS,
    PARTS,
    Export,
    export,
    export_lines,
    line_page,
)
from gateway.backup.records import Kind, Part, RecordWriter
from gateway.history.trim_pause import PAUSED
from gateway.ledger.gather_all import Progress, batches, counted, gather_bounded, outcomes_bounded, unwatched
from gateway.ledger.listing.names import ACCOUNT_ORDER, ACCOUNTS
from gateway.ledger.paging import scan_pages, scan_set
from gateway.store import Store
from gateway.store.connection import RedisReplyError
from gateway.store.identity import IDENTITY, PROBE
from gateway.store.link import RedisLink

ACCOUNTS_TOGETHER = 20  # that are read at once; the store runs their scripts before it serves anybody else
STRINGS_TOGETHER = 100
TOGETHER = 20  # keys of other kinds, any of which may be large
NAMES = 1000  # names per SCAN
ELEMENTS = 500  # of a large key per command
STAGING = "restore:"  # begins the names of what an interrupted restore has left
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

    def __init__(self, store: Store, writer: RecordWriter, progress: Progress = unwatched) -> None:
        self._store = store
        self._progress = progress
        self._writer = writer
        self._accounts: dict[str, _Written] = {}
        self._counts = StoreCounts()

    async def run(self) -> StoreCounts:
        """Write everything. BackupError if an account cannot be read, StoreUnavailable if a server is away."""
        names = sorted(await scan_set(self._store.link(ACCOUNTS), ACCOUNTS))
        for page in batches(counted(names, "accounts saved", self._progress), ACCOUNTS_TOGETHER):
            for read in await gather_bounded(map(self._read_account, page)):
                if read is not None:
                    await self._write_account(*read)
        known = [name.encode() for name in self._accounts]
        for number, some in enumerate(batches(known, ELEMENTS)):
            self._writer.write(Part(ACCOUNTS, "set", some, first=not number))
        for link in self._store.links:
            async for parts in _other_keys(link):
                for part in filter(self._belongs, parts):
                    self._writer.write(part)
        self._counts.records = self._writer.records
        return self._counts

    async def _read_account(self, name: str) -> tuple[Export, list[Any]] | None:
        """The account and the first page of its lines; None if only the index has its name."""
        try:
            exported = await export(self._store, name)
            return None if exported is None else (exported, await line_page(self._store, exported))
        except RedisReplyError as error:
            raise BackupError(f"account {name} cannot be read: {error.detail}") from error

    async def _write_account(self, exported: Export, lines: list[Any]) -> None:
        for part in exported.parts:
            self._writer.write(part)
        async for part in export_lines(self._store, exported, lines):
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
        for some in batches(names, STRINGS_TOGETHER):
            others: list[str] = []
            for name, part in zip(some, await _read_strings(link, some), strict=True):
                if isinstance(part, Part):
                    yield [part]
                elif part is not None:
                    others.append(name)
            for parts in await gather_bounded((_read(link, name) for name in others), TOGETHER):
                yield parts


def _is_other(name: str) -> bool:
    """Whether the key is none of those that are read with its account, or made anew by a restore."""
    if match := OF_ACCOUNT.fullmatch(name):
        return match[2] not in PARTS and not match[2].startswith(KEY) and not ORDERS.fullmatch(match[2])
    return name not in (ACCOUNTS, ACCOUNT_ORDER, PAUSED) and not name.startswith((IDENTITY, PROBE, STAGING))


async def _read_strings(link: RedisLink, names: Sequence[str]) -> list[Part | RedisReplyError | None]:
    """The part of each key that is a string; None if it has expired meanwhile, the store's error for another kind."""
    # Most keys are strings, so their kind is not asked for.
    calls = (link.call(command, name) for name in names for command in ("PEXPIRETIME", "GET"))
    answers = await outcomes_bounded(calls, 2 * STRINGS_TOGETHER)
    read: list[Part | RedisReplyError | None] = []
    for name, until, value in zip(names, answers[::2], answers[1::2], strict=True):
        if isinstance(until, BaseException):
            raise until
        if isinstance(value, RedisReplyError) and value.kind == "WRONGTYPE":
            read.append(value)
        elif isinstance(value, BaseException):
            raise value
        else:
            read.append(None if value is None or until == -2 else Part(name, "string", [value], expires=max(0, until)))
    return read


async def _read(link: RedisLink, name: str) -> list[Part]:
    """All parts of a key that is no string; none if it has expired meanwhile."""
    found, until = await asyncio.gather(link.call("TYPE", name), link.call("PEXPIRETIME", name))
    kind = cast(Kind, found if isinstance(found, str) else found.decode())
    if kind not in ("stream", *_SCANS) or until == -2:
        return []
    expires = max(0, until)
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
