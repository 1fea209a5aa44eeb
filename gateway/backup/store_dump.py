"""Writes the content of a store into a file of records: every account at one moment, then all other keys.

Other keys are read after the accounts. What belongs to a later state of an account is left out: a marker of a call that
is settled after the account was read, a key that was created then, what a member without a key has spent since, and
accounts of that time.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import aclosing
from typing import Any, cast

from msgspec import Struct

from gateway.backup import BackupError
from gateway.backup.account_export import OF_ACCOUNT, ORDERS, PARTS, Export, export, export_lines, line_page
from gateway.backup.account_pages import KEY, MEMBER
from gateway.backup.records import Kind, Part, RecordWriter
from gateway.history.trim_pause import PAUSED
from gateway.ledger.gather_all import Progress, batches, counted, gather_bounded, outcomes_bounded, unwatched
from gateway.ledger.listing.names import ACCOUNT_ORDER, ACCOUNTS
from gateway.ledger.paging import scan_pages, scan_set
from gateway.ledger.scripts import load_script
from gateway.store import Store
from gateway.store.address import ClusterAddress
from gateway.store.connection import RedisReplyError
from gateway.store.identity import IDENTITY, PROBE
from gateway.store.link import RedisLink

# Accounts that are read at once, while as many are written; the store runs their scripts before it serves anybody else.
ACCOUNTS_TOGETHER = 10
STRINGS_TOGETHER = 100
TOGETHER = 20  # keys of other kinds, any of which may be large
NAMES = 1000  # names per SCAN
ELEMENTS = 500  # of a large key per command
STAGING = "restore:"  # begins the names of what an interrupted restore has left
SPENDING = frozenset({b"spent", b"held", b"base"})  # fields of a member

_contents = load_script("contents")
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
        async with aclosing(self._read_accounts(names)) as accounts:
            async for read in accounts:
                if read is not None:
                    await self._write_account(*read)
        known = [name.encode() for name in self._accounts]
        for number, some in enumerate(batches(known, ELEMENTS)):
            self._writer.write(Part(ACCOUNTS, "set", some, first=not number))
        for link in self._store.links:
            in_cluster = isinstance(self._store.address, ClusterAddress)
            async for parts in _other_keys(link, self._belongs_by_name, in_cluster=in_cluster):
                for part in filter(self._belongs, parts):
                    self._writer.write(part)
        self._counts.records = self._writer.records
        return self._counts

    async def _read_accounts(self, names: Sequence[str]) -> AsyncGenerator[tuple[Export, list[Any]] | None, None]:
        """Each account in order. Some are read while those before them are written."""
        pages = batches(counted(names, "accounts saved", self._progress), ACCOUNTS_TOGETHER)
        reading: asyncio.Task[list[tuple[Export, list[Any]] | None]] | None = None
        try:
            for page in pages:
                before, reading = reading, asyncio.create_task(gather_bounded(map(self._read_account, page)))
                for read in await before if before is not None else ():
                    yield read
            for read in await reading if reading is not None else ():
                yield read
        finally:
            if reading is not None:
                reading.cancel()
                await asyncio.wait([reading])
                reading.cancelled() or reading.exception()  # one failure is enough

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

    def _belongs_by_name(self, name: str) -> bool:
        """Whether another key may belong to the state of the accounts in the file."""
        if match := OF_ACCOUNT.fullmatch(name):
            written = self._accounts.get(match[1])
            if written is None:
                return False
            return not match[2].startswith(MEMBER) or match[2].removeprefix(MEMBER) not in written.users
        return True

    def _belongs(self, part: Part) -> bool:
        """Whether a part of such a key belongs to it."""
        if match := OF_ACCOUNT.fullmatch(part.key):
            if match[2].startswith(MEMBER):
                return bool(part.values)
            if not match[2].startswith(":st:"):
                return True
            line = part.values[0].decode().split(" ")[2:]
            return not line or line[0] == "-" or _number(line[0]) <= self._accounts[match[1]].last
        if part.key.startswith(("kh:", "ki:")):
            owner = part.values[0].decode()
            account, _, key_id = owner.partition(":") if part.key.startswith("kh:") else (owner, "", part.key[3:])
            written = self._accounts.get(account)
            return written is not None and key_id.partition(":")[0] in written.key_ids
        return True


async def _other_keys(
    link: RedisLink, belongs: Callable[[str], bool], *, in_cluster: bool
) -> AsyncIterator[list[Part]]:
    """The parts of each other key of a server whose name belongs to the backup."""
    read = _read_strings if in_cluster else _read_small
    async for page in scan_pages(link, "SCAN", count=NAMES):
        names = [name for name in (key.decode() for key in page) if is_other(name) and belongs(name)]
        for some in batches(names, STRINGS_TOGETHER):
            parts, others = await read(link, some)
            yield parts
            for found in await gather_bounded((_read(link, name) for name in others), TOGETHER):
                yield found


def is_other(name: str) -> bool:
    """Whether the key is none of those that are read with its account, or made anew by a restore.

    SCAN may name it twice, so it may be in a backup twice.
    """
    if match := OF_ACCOUNT.fullmatch(name):
        return match[2] not in PARTS and not match[2].startswith(KEY) and not ORDERS.fullmatch(match[2])
    return name not in (ACCOUNTS, ACCOUNT_ORDER, PAUSED) and not name.startswith((IDENTITY, PROBE, STAGING))


async def _read_small(link: RedisLink, names: Sequence[str]) -> tuple[list[Part], list[str]]:
    """The keys of few elements, each in one part, and the names of the others."""
    parts, others = list[Part](), list[str]()
    found = await link.eval(_contents, names, [ELEMENTS])
    for name, kind, until, values in zip(names, found[::3], found[1::3], found[2::3], strict=True):
        if kind == b"more":
            others.append(name)
        elif kind != b"none":
            kept = _without_spending(values) if _is_member(name) else values
            parts.append(Part(name, cast(Kind, kind.decode()), kept, expires=max(0, until)))
    return parts, others


async def _read_strings(link: RedisLink, names: Sequence[str]) -> tuple[list[Part], list[str]]:
    """The keys that are strings, and the names of the others, with two commands for each key: it may be in any slot."""
    # Most keys are strings, so their kind is not asked for.
    calls = (link.call(command, name) for name in names for command in ("PEXPIRETIME", "GET"))
    answers = await outcomes_bounded(calls, 2 * STRINGS_TOGETHER)
    parts, others = list[Part](), list[str]()
    for name, until, value in zip(names, answers[::2], answers[1::2], strict=True):
        if isinstance(until, BaseException):
            raise until
        if isinstance(value, RedisReplyError) and value.kind == "WRONGTYPE":
            others.append(name)
        elif isinstance(value, BaseException):
            raise value
        elif value is not None and until != -2:  # it has not expired meanwhile
            parts.append(Part(name, "string", [value], expires=max(0, until)))
    return parts, others


async def _read(link: RedisLink, name: str) -> list[Part]:
    """All parts of a key that is no string; none if it has expired meanwhile."""
    found, until = await asyncio.gather(link.call("TYPE", name), link.call("PEXPIRETIME", name))
    kind = cast(Kind, found if isinstance(found, str) else found.decode())
    if kind not in ("stream", *_SCANS) or until == -2:
        return []
    expires = max(0, until)
    pages = _stream(link, name) if kind == "stream" else scan_pages(link, _SCANS[kind], name, count=ELEMENTS)
    is_member = _is_member(name)
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


def _is_member(name: str) -> bool:
    match = OF_ACCOUNT.fullmatch(name)
    return match is not None and match[2].startswith(MEMBER)


def _without_spending(fields: list[bytes]) -> list[bytes]:
    """The budget of a member who had no key when the account was read, and so had spent nothing."""
    pairs = zip(fields[::2], fields[1::2], strict=True)
    return [value for name, amount in pairs if name not in SPENDING for value in (name, amount)]


def _number(id_: str) -> tuple[int, int]:
    milliseconds, _, step = id_.partition("-")
    return int(milliseconds), int(step)
