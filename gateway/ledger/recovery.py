"""Sends the journal's entries to the store: after it was unreachable, after a failover, and for dead processes.

The files of a dead process become part of this journal first, on disk. Then they are sent, kept and sent again like its
other segments. So a store that loses them afterwards gets them again, and if this process is killed, another process
takes them over.

Entries may be sent any number of times. So this never asks which ones arrived; it sends all that may be missing. It
runs only while an entry is unconfirmed, and tries at most once per second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from msgspec import Struct

from gateway.errors import GatewayError, StoreUnavailable
from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import batches, gather_bounded
from gateway.ledger.inflight_checkpoint import Orphans, read_inflight_checkpoint
from gateway.ledger.journal import NOWHERE, Journal, Segment, read_entries
from gateway.ledger.settlement_writer import SettlementWriter, Waiting
from gateway.store.greeting import ServerIdentity

CHUNK = 512  # entries in flight at once
MOST_OLD = 4096  # entries for which the ledger is searched together: a few MB of memory
MIN_PAUSE = 0.05  # seconds
MAX_PAUSE = 1.0


class TakenOver(Struct, frozen=True):
    """Numbers of settlements in the journals of dead processes, and of calls that they were serving."""

    settlements: int = 0
    calls: int = 0


class Recovery:
    """Sends a journal's entries through the writer that wrote them; `lapse` charges calls at their last checkpoint."""

    def __init__(
        self, journal: Journal, writer: SettlementWriter, *, lapse: Callable[[str, Sequence[str]], Awaitable[object]]
    ) -> None:
        self._journal = journal
        self._writer = writer
        self._lapse = lapse
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._failovers = 0
        self._taken_over = TakenOver()  # taken over and not yet reported
        self._undelivered: dict[str, list[str]] = {}  # calls of dead processes that have no settlement, by account
        writer.on_journaled = self.nudge

    def nudge(self) -> None:
        """Try to send unconfirmed entries until the store has them."""
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._send_unconfirmed())

    def reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        """For `Store.on_reconnect`: a new server or history may lack confirmed entries, so send them all again.

        After another connection to the same server there is nothing to do: the link sends again what was in flight.
        """
        if not now.has_data_of(before):
            self._failovers += 1
            self._journal.mark_unconfirmed()
            if self._journal.unconfirmed:
                self.nudge()

    async def take_over(self) -> TakenOver:
        """Take over the files of dead processes, send their entries and charge the calls that they were serving.

        Raises GatewayError if the store is unreachable. The entries are then in this journal; a later call sends and
        reports them.
        """
        for lock, paths in self._journal.orphans():
            await self._take_over_owner(lock, paths)
        await self._pass()
        for account in list(self._undelivered):
            await self._lapse(account, self._undelivered[account])
            del self._undelivered[account]
        taken_over, self._taken_over = self._taken_over, TakenOver()
        return taken_over

    async def _take_over_owner(self, lock: Path, paths: list[Path]) -> None:
        """Take over one owner without the store. If this is interrupted, the rest is taken over by a later call."""
        checkpoint = lock.with_suffix(".board")
        left, settlements = await asyncio.to_thread(_read_orphan, checkpoint, paths)
        if left.entries and self._journal.append(left.entries) == NOWHERE:
            await self._send(left.entries)  # the disk is full: they go to the store alone, as in a running worker
        # The checkpoint file is removed before the journal files move. If this is interrupted between the two, a later
        # run still needs those files to know which calls have a settlement.
        await asyncio.to_thread(checkpoint.unlink, missing_ok=True)
        for path in paths:
            self._journal.take_over_file(path)
        await asyncio.to_thread(lock.unlink, missing_ok=True)
        # If this process ends before it charges these calls, they are charged when their leases end.
        for account, request_ids in left.others.items():
            self._undelivered.setdefault(account, []).extend(request_ids)
        calls = len(left.entries) + sum(map(len, left.others.values()))
        self._taken_over = TakenOver(self._taken_over.settlements + settlements, self._taken_over.calls + calls)

    async def close(self) -> None:
        """Try once more, then stop. Unconfirmed entries stay in the journal, which another process may take over."""
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        with contextlib.suppress(GatewayError):
            await self._pass()

    async def _send_unconfirmed(self) -> None:
        pause = MIN_PAUSE
        while self._journal.unconfirmed:
            await asyncio.sleep(pause)
            try:
                await self._pass()
            except GatewayError:
                pause = min(2 * pause, MAX_PAUSE)

    async def _pass(self) -> None:
        """Send every segment that is due; raises if the store is unreachable or was replaced meanwhile."""
        if not self._journal.unconfirmed:
            return
        failovers = self._failovers
        sent: list[Segment] = []
        old: list[Waiting] = []  # entries of these segments that the ledger must be searched for
        for segment in self._journal.rotate():
            if segment.due:
                with contextlib.closing(read_entries(segment.path)) as entries:
                    await self._send(entries, settled=segment.settled, old=old)
                sent.append(segment)
                if not old or len(old) >= MOST_OLD:
                    await self._end_segments(sent, old, failovers)
        await self._end_segments(sent, old, failovers)

    async def _end_segments(self, sent: list[Segment], old: list[Waiting], failovers: int) -> None:
        """Charge the old entries of segments, mark the segments as stored, and empty both lists."""
        await self._writer.send_old(old)
        if failovers != self._failovers:  # confirmations of the former server may be lost
            raise StoreUnavailable(detail="the store was replaced while the journal was sent")
        for segment in sent:
            self._journal.settle(segment)
        sent.clear()
        old.clear()

    async def _send(self, entries: Iterable[Entry], *, settled: bool = False, old: list[Waiting] | None = None) -> None:
        for chunk in batches(entries, CHUNK):
            await gather_bounded((self._writer.send(entry, settled=settled, old=old) for entry in chunk), CHUNK)


def _read_orphan(checkpoint: Path, files: Iterable[Path]) -> tuple[Orphans, int]:
    """The calls in a checkpoint file that have no settlement in the journal files, and the number of settlements."""
    left, settlements = read_inflight_checkpoint(checkpoint), 0
    known = {entry.request_id for entry in left.entries}.union(*left.others.values())
    for path in files:
        for entry in read_entries(path):
            settlements += 1
            known.discard(entry.request_id)
    others = {
        account: [request_id for request_id in request_ids if request_id in known]
        for account, request_ids in left.others.items()
    }
    return Orphans([entry for entry in left.entries if entry.request_id in known], others), settlements
