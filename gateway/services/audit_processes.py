"""Processes that audit pages of accounts, one for each core: `gateway audit`, and the audit of a restore or a backup.

A process gets a line of JSON for each page and answers with the report on it, also as a line. It ends with its input,
so it does not outlive the command. What it cannot do, the command does itself and then reports the reason.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Self

import msgspec
from msgspec import Struct

from gateway.database.address import DatabaseAddress
from gateway.ledger import AuditReport
from gateway.ledger.auditing.pages import Page, Part
from gateway.store import Store
from gateway.store.address import ClusterAddress, RedisAddress, SentinelAddress, StoreAddress

MOST = 8  # processes; the store, which they all ask, is one thread
LONGEST_LINE = 256 * 2**20  # bytes of a report on a page


class AuditPlace(Struct):
    """What a process audits: the store, the deployment that it must be, and the database, if there is one."""

    deployment: str
    server: RedisAddress | None = None
    sentinels: SentinelAddress | None = None
    cluster: ClusterAddress | None = None
    database: DatabaseAddress | None = None

    @property
    def address(self) -> StoreAddress:
        """The store."""
        found = self.server or self.sentinels or self.cluster
        assert found is not None
        return found

    @classmethod
    def of(cls, address: StoreAddress, database: DatabaseAddress | None, *, deployment: str = "") -> Self:
        """The place of these addresses."""
        place = cls(deployment, database=database)
        if isinstance(address, RedisAddress):
            place.server = address
        elif isinstance(address, SentinelAddress):
            place.sentinels = address
        else:
            place.cluster = address
        return place

    def line(self) -> bytes:
        """As the first line of a process's input."""
        return msgspec.json.encode(self, enc_hook=str) + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Self:
        """The place in such a line."""
        return msgspec.json.decode(line, type=cls, dec_hook=lambda type_, value: type_(value))  # a path


class AuditJob(Struct):
    """A page of accounts."""

    part: Part
    page: Mapping[str, Sequence[str]]


class AuditProcesses:
    """Starts the processes when they are first needed; `close` ends them."""

    def __init__(self, place: AuditPlace, count: int) -> None:
        self.at_once = count
        self._place = place
        self._free: list[asyncio.subprocess.Process] = []
        self._started = 0

    async def run(self, part: Part, page: Page) -> AuditReport | None:
        """The report on a page; None if its process has failed, and no other one is started in its place."""
        process = self._free.pop() if self._free else None
        try:
            if process is None:
                if self._started >= self.at_once:
                    return None
                process = await self._start()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(msgspec.json.encode(AuditJob(part, page)) + b"\n")
            await process.stdin.drain()
            report = msgspec.json.decode(await process.stdout.readline(), type=AuditReport)
        except (OSError, ValueError):  # it could not start, or it has ended
            await _end(process)
            return None
        except BaseException:
            await _end(process)
            raise
        self._free.append(process)
        return report

    async def close(self) -> None:
        """End all of them."""
        for process in self._free:
            await _end(process)
        self._free.clear()

    async def _start(self) -> asyncio.subprocess.Process:
        self._started += 1
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "gateway.services.audit_process"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,  # the command meets the same problem, and says so
            limit=LONGEST_LINE,
        )
        assert process.stdin is not None
        process.stdin.write(self._place.line())
        return process


@asynccontextmanager
async def audit_processes(
    store: Store, database: DatabaseAddress | None, *, count: int | None = None
) -> AsyncIterator[AuditProcesses | None]:
    """The processes for an open store and its database; None on a machine with one core."""
    count = min(len(os.sched_getaffinity(0)), MOST) if count is None else count
    if count < 2:
        yield None
        return
    deployment = store.guard.deployment if store.guard is not None else ""
    processes = AuditProcesses(AuditPlace.of(store.address, database, deployment=deployment), count)
    try:
        yield processes
    finally:
        await processes.close()


async def _end(process: asyncio.subprocess.Process | None) -> None:
    if process is not None:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
