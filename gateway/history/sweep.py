"""Compares every account of the store with the database, in steps. Correctness rests on it: hints may be lost.

A step reads one page of the index of accounts. With a step every `BUSY_STEP` seconds, a pass takes at most `PASS`
seconds; passes begin at least `PASS` seconds after each other. So each account is compared within twice that time.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import Any

from msgspec import Struct

from gateway.database.engine import Database
from gateway.errors import GatewayError
from gateway.history.import_state import ImportState, read_states
from gateway.history.sql_thread import SqlThread
from gateway.ledger.gather_all import gather_bounded
from gateway.ledger.line import milliseconds
from gateway.ledger.listing.names import ACCOUNTS
from gateway.store.links import Links, slot

PASS = 240.0  # seconds
STEP, BUSY_STEP = 0.5, 1.0  # seconds; the second one after a round with many lines
PAGE = 500  # accounts per step, or more if a pass would take too long otherwise


class SweepFindings(Struct):
    """What a step found."""

    differing: dict[str, int] = {}  # accounts whose last number or balance is not the database's; lines it lacks
    aged: list[str] = []  # accounts whose first line is older than `before`
    finished: bool = False  # this was the last step of a pass
    below_zero: int = 0  # accounts of the whole pass, once it is finished
    below_floor: int = 0


class Sweep:
    """The position in the index of accounts."""

    def __init__(self, links: Links, database: Database, sql: SqlThread) -> None:
        self._links = links
        self._database = database
        self._sql = sql
        self._cursor: bytes | str = "0"
        self._began = -PASS
        self._page = PAGE
        self._running = False
        self._below_zero: set[str] = set()  # accounts of this pass; a step may see one twice
        self._below_floor: set[str] = set()

    @property
    def is_due(self) -> bool:
        """Whether a step is to be made."""
        return self._running or time.monotonic() - self._began >= PASS

    async def step(self, *, before: int) -> SweepFindings:
        """Compare the next accounts. `before` is in Unix milliseconds of the store's clock."""
        link = self._links.link(ACCOUNTS)
        if not self._running:
            accounts = await link.call("SCARD", ACCOUNTS)
            self._page = max(PAGE, math.ceil(accounts * 2 * BUSY_STEP / PASS))
            self._running, self._began, self._cursor = True, time.monotonic(), "0"
            self._below_zero.clear()
            self._below_floor.clear()
        cursor, page = await link.call("SSCAN", ACCOUNTS, self._cursor, "COUNT", self._page)
        found = await self._compare(sorted({name.decode() for name in page}), before)
        self._cursor = cursor  # only now: a step that failed is repeated
        self._running = cursor != b"0"
        found.finished = not self._running
        found.below_zero, found.below_floor = len(self._below_zero), len(self._below_floor)
        return found

    async def _compare(self, accounts: list[str], before: int) -> SweepFindings:
        ends = await gather_bounded(map(self._ends, accounts))
        states = await self._sql.run(self._read_states, accounts)
        found = SweepFindings()
        for account, end in zip(accounts, ends, strict=True):
            if end is None:
                continue
            (seq, balance, floor), first = end
            state = states.get(account, ImportState(account))
            if seq is not None and (seq, balance) != (b"%d" % state.last_seq, b"%d" % state.balance):
                found.differing[account] = max(0, int(seq) - state.last_seq)
            self._note_debt(account, int(balance or 0), int(floor or 0))
            if first and milliseconds(first[0][0].decode()) < before:
                found.aged.append(account)
        return found

    def _note_debt(self, account: str, balance: int, floor: int) -> None:
        if balance < 0:
            self._below_zero.add(account)
        if balance < floor:
            self._below_floor.add(account)

    async def _ends(self, account: str) -> tuple[Any, Any] | None:
        """Number, balance and floor, and the first line; None if they cannot be read now."""
        key = slot(account)
        link = self._links.link(key)
        head, first = (
            link.call("HMGET", key, "seq", "bal", "floor"),
            link.call("XRANGE", f"{key}:lg", "-", "+", "COUNT", 1),
        )
        read = await asyncio.gather(head, first, return_exceptions=True)
        if any(isinstance(part, GatewayError) for part in read):
            return None  # the server is away, or the account is damaged, which the audit says
        return read[0], read[1]

    def _read_states(self, accounts: list[str]) -> dict[str, ImportState]:
        with self._database.reading() as connection:
            return read_states(connection, accounts)
