"""Turns holds into charges, each exactly once, through the journal when there is one.

Every settlement is a repeatable entry: the script answers a repetition with what was stored. So when the store is away
the entry just waits in the journal and is sent again, by this process or by the next one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from msgspec import Struct

from gateway.amounts import MAX_AMOUNT
from gateway.errors import GatewayError, InternalError, StoreUnavailable
from gateway.ledger.call import Hold, Outcome, Settled, line_meta
from gateway.ledger.entry import Entry
from gateway.ledger.journal import NOWHERE, Journal
from gateway.ledger.script_batcher import Argument, Batch, Batches, own_error
from gateway.ledger.scripts import Links
from gateway.store.link import Script

log = logging.getLogger("gateway.ledger")

STATUS = ("settled", "duplicate", "late", "amended")  # by the codes of settle.lua
OLD, NOACCT = 4, 20
WIDTH = 3


class Waiting(Struct):
    """An entry on its way, and who waits for it, if anybody does; `segment` is where the journal has it."""

    entry: Entry
    future: asyncio.Future[Settled] | None
    segment: int = NOWHERE


class SettlementWriter:
    """Sends entries; `lookup(account, request_id, since)` finds a line that is older than its marker may be."""

    def __init__(
        self,
        links: Links,
        script: Script,
        *,
        lookup: Callable[[str, str, int], Any],
        journal: Journal | None = None,
    ) -> None:
        self.journal = journal
        self.on_journaled: Callable[[], None] = _nothing  # the store is away: somebody should send the journal later
        self._lookup = lookup
        self._tasks: set[asyncio.Task[None]] = set()
        self._booked = 0  # entries on their way that nobody waits for; a future and its callback would cost 0.7 µs each
        self._all_told = asyncio.Event()
        self._batches: Batches[Waiting] = Batches(
            links,
            script,
            arguments=_arguments,
            answered=self._answered,
            failed=self._failed,
            before=self._write_journal if journal is not None else None,
        )

    def settle(self, hold: Hold, outcome: Outcome) -> asyncio.Future[Settled]:
        """Charge what the call came to; an absurd amount is clamped to the hold and marked."""
        return self.send(_charge(hold, outcome))

    def void(self, hold: Hold) -> asyncio.Future[Settled]:
        """Give everything back but the request that was counted."""
        return self.send(_release(hold))

    def book(self, hold: Hold, outcome: Outcome | None) -> None:
        """Settle, or void without an outcome; nobody waits, so a failure is logged."""
        entry = _release(hold) if outcome is None else _charge(hold, outcome)
        self._booked += 1
        self._batches.put(entry.account, Waiting(entry, None))

    async def drain(self) -> None:
        """Wait until every entry that nobody waits for has come to its end."""
        while self._booked:
            self._all_told.clear()
            await self._all_told.wait()

    def void_unwatched(self, hold: Hold) -> None:
        """Void a hold that nobody waits for; if that fails its lease runs out."""
        self.void(hold).add_done_callback(_look_away)

    def send(self, entry: Entry, *, segment: int = NOWHERE) -> asyncio.Future[Settled]:
        """Send an entry; `segment` says that the journal has it already."""
        future: asyncio.Future[Settled] = asyncio.get_running_loop().create_future()
        self._batches.put(entry.account, Waiting(entry, future, segment))
        return future

    def _write_journal(self, waiting: dict[str, list[Waiting]]) -> None:
        assert self.journal is not None
        new = [item for items in waiting.values() for item in items if item.segment == NOWHERE]
        if new:
            segment = self.journal.append([item.entry for item in new])
            for item in new:
                item.segment = segment

    def _answered(self, batch: Batch[Waiting], reply: list[Any]) -> None:
        if reply[0] == NOACCT:
            self._failed(batch, InternalError(detail=f"there is no account {batch.account}"))
            return
        at = 0
        for item in batch.items:
            code, amount, balance = reply[at : at + WIDTH]
            at += WIDTH
            if code == OLD:
                self._search(item)
                continue
            self._confirm(item)
            future = item.future
            if future is None:
                self._told()
            elif not future.done():
                status = "void" if item.entry.kind == "void" and code == 0 else STATUS[code]
                future.set_result(Settled(status, -amount, int(balance)))

    def _failed(self, batch: Batch[Waiting], error: GatewayError) -> None:
        away = isinstance(error, StoreUnavailable)
        for item in batch.items:
            written = item.segment != NOWHERE and self.journal is not None
            if written and not away:  # sending it again would fail again
                assert self.journal is not None
                self.journal.refuse(item.entry, error.detail or error.message)
                self._confirm(item)
            if item.future is None:
                self._told()
                if item.segment == NOWHERE:
                    amount, reason = -item.entry.amount, error.log_text() or error.message
                    log.error("%s: settlement of %d nano failed: %s", item.entry.request_id, amount, reason)
            elif item.future.done():
                continue
            elif written and not away:
                item.future.set_result(Settled("refused", 0))
            elif item.segment >= 0:
                item.future.set_result(Settled("journaled", -item.entry.amount))
            else:
                item.future.set_exception(own_error(error))
        if away and self.journal is not None:
            self.on_journaled()

    def _told(self) -> None:
        self._booked -= 1
        if not self._booked:
            self._all_told.set()

    def _confirm(self, item: Waiting) -> None:
        if self.journal is None:
            return
        if item.segment >= 0:
            self.journal.confirm(item.segment)
        elif item.segment == NOWHERE:  # the disk refused it, so until now the board had the only trace
            self.journal.checkpoint.clear(item.entry.request_id)

    def _search(self, item: Waiting) -> None:
        """The marker may have expired: only the ledger knows whether this was booked."""
        task = asyncio.get_running_loop().create_task(self._book_old(item))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _book_old(self, item: Waiting) -> None:
        entry = item.entry
        try:
            found = await self._lookup(entry.account, entry.request_id, entry.at)
        except GatewayError as error:
            self._failed(Batch(entry.account, [item]), error)
            return
        if found is None:
            entry.force = 1
            self._batches.put(entry.account, item)
            return
        self._confirm(item)
        if item.future is None:
            self._told()
        elif not item.future.done():
            item.future.set_result(Settled("duplicate", -found))


def _charge(hold: Hold, outcome: Outcome) -> Entry:
    amount = outcome.amount
    clamped = not 0 <= amount <= MAX_AMOUNT
    if clamped:
        amount = hold.amount
    return Entry(
        hold.key.account,
        hold.request_id,
        hold.key.id,
        "use",
        -amount,
        min(max(outcome.tokens, 0), 1_000_000_000),
        hold.admitted_at,
        line_meta(hold, outcome, clamped=clamped),
    )


def _release(hold: Hold) -> Entry:
    return Entry(hold.key.account, hold.request_id, hold.key.id, "void", 0, 0, hold.admitted_at, "")


def _arguments(batch: Batch[Waiting]) -> list[Argument]:
    args: list[Argument] = []
    for item in batch.items:
        e = item.entry
        args += (e.request_id, e.key_id, e.kind, e.amount, e.tokens, e.at, e.force, e.meta)
    return args


def _nothing() -> None:
    pass


def _look_away(future: asyncio.Future[Settled]) -> None:
    if not future.cancelled():
        future.exception()
