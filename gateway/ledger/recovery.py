"""Brings the journal's entries to the store: after it was away, after a failover, and those of the dead.

What the dead left becomes part of this journal first, as it lies on the disk, and is sent, kept and sent again like all
else in it: a store that forgets it afterwards gets it once more, and a heir that is killed has heirs of its own.

Entries may be sent any number of times, so this never asks what arrived; it sends again what may be missing. It runs
only while something is unconfirmed, and tries every second at most.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from msgspec import Struct

from gateway.errors import GatewayError, StoreUnavailable
from gateway.ledger.entry import Entry
from gateway.ledger.gather_all import gather_all
from gateway.ledger.inflight_checkpoint import Orphans, read_inflight_checkpoint
from gateway.ledger.journal import NOWHERE, Journal, read_entries
from gateway.ledger.settlement_writer import SettlementWriter
from gateway.store.greeting import ServerIdentity

CHUNK = 512  # entries in flight at once
MIN_PAUSE = 0.05  # seconds
MAX_PAUSE = 1.0


class TakenOver(Struct, frozen=True):
    """What dead processes left: settlements in their journals, and calls they were serving."""

    settlements: int = 0
    calls: int = 0


class Recovery:
    """Replays a journal through the booking that wrote it; `lapse` charges calls of an account at their checkpoints."""

    def __init__(
        self, journal: Journal, writer: SettlementWriter, *, lapse: Callable[[str, Sequence[str]], Awaitable[object]]
    ) -> None:
        self._journal = journal
        self._writer = writer
        self._lapse = lapse
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._failovers = 0
        self._taken_over = TakenOver()  # taken over and not told of yet
        self._unheard: dict[str, list[str]] = {}  # calls of the dead that delivered nothing, by account
        writer.on_journaled = self.nudge

    def nudge(self) -> None:
        """Something did not reach the store: go on trying until it has."""
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._send_unconfirmed())

    def reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        """For `Store.on_reconnect`: another server or history may lack what was confirmed, so send it all again."""
        if (before.run_id, before.master_replid) != (now.run_id, now.master_replid):
            self._failovers += 1
            self._journal.mark_unconfirmed()
        if self._journal.unconfirmed:
            self.nudge()

    async def take_over(self) -> TakenOver:
        """Take over what dead processes left, send it, charge what they were serving; raises when the store is away.

        Then it is in this journal all the same; another call goes on, and tells of it once it was sent.
        """
        for lock, paths in self._journal.orphans():
            await self._take_over_owner(lock, paths)
        await self._pass()
        for account in list(self._unheard):
            await self._lapse(account, self._unheard[account])
            del self._unheard[account]
        taken_over, self._taken_over = self._taken_over, TakenOver()
        return taken_over

    async def _take_over_owner(self, lock: Path, paths: list[Path]) -> None:
        """Make it ours without the store. Whenever this is cut short, what is left is found and taken again."""
        checkpoint = lock.with_suffix(".board")
        left, settlements = await asyncio.to_thread(_read_orphan, checkpoint, paths)
        if left.entries and self._journal.append(left.entries) == NOWHERE:
            await self._send(left.entries)  # the disk is full: to the store alone, as a living worker's
        # The files come after the board: what they hold was not charged by it, and they must be there to tell.
        await asyncio.to_thread(checkpoint.unlink, missing_ok=True)
        for path in paths:
            self._journal.take_over_file(path)
        await asyncio.to_thread(lock.unlink, missing_ok=True)
        for account, request_ids in left.others.items():  # if this process dies first, their leases end them
            self._unheard.setdefault(account, []).extend(request_ids)
        calls = len(left.entries) + sum(map(len, left.others.values()))
        self._taken_over = TakenOver(self._taken_over.settlements + settlements, self._taken_over.calls + calls)

    async def close(self) -> None:
        """One last try, then stop; what is left stays in the journal, which may be somebody else's soon."""
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
        """Send every segment that has something unconfirmed; raises if the store is away or was replaced meanwhile."""
        if not self._journal.unconfirmed:
            return
        failovers = self._failovers
        for segment in self._journal.rotate():
            if segment.due:
                with contextlib.closing(self._journal.read(segment)) as entries:
                    await self._send(entries)
                if failovers != self._failovers:  # what the server of before confirmed may be lost again
                    raise StoreUnavailable(detail="the store was replaced while the journal was sent")
                self._journal.settle(segment)

    async def _send(self, entries: Iterable[Entry]) -> None:
        for chunk in _chunks(entries):
            await gather_all(self._writer.send(entry) for entry in chunk)


def _read_orphan(checkpoint: Path, files: Iterable[Path]) -> tuple[Orphans, int]:
    """What a board has that no file has, for a settlement is the truth; and how many settlements the files have."""
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


def _chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    iterator = iter(entries)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
