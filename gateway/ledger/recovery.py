"""Brings the journal's entries to the store: after it was away, after a failover, and those of the dead.

What the dead were serving is on their boards, and is settled after their journals.

Entries may be sent any number of times, so this never asks what arrived; it sends again what may be missing. It runs
only while something is unconfirmed, and tries every second at most.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import islice

from msgspec import Struct

from gateway.errors import GatewayError
from gateway.ledger.board import read_board
from gateway.ledger.booking import Booking
from gateway.ledger.entry import Entry
from gateway.ledger.journal import ELSEWHERE, Journal, read_entries
from gateway.transport.redis_link import ServerIdentity

CHUNK = 512  # entries in flight at once
MIN_PAUSE = 0.05  # seconds
MAX_PAUSE = 1.0


class Adopted(Struct, frozen=True):
    """What dead processes left: settlements in their journals, and calls they were serving."""

    settlements: int = 0
    calls: int = 0


class Recovery:
    """Replays a journal through the booking that wrote it; `lapse` charges calls of an account at their checkpoints."""

    def __init__(
        self, journal: Journal, booking: Booking, *, lapse: Callable[[str, Sequence[str]], Awaitable[object]]
    ) -> None:
        self._journal = journal
        self._booking = booking
        self._lapse = lapse
        self._task: asyncio.Task[None] | None = None
        self._failovers = 0
        booking.on_journaled = self.nudge

    def nudge(self) -> None:
        """Something did not reach the store: go on trying until it has."""
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send_unconfirmed())

    def reconnected(self, before: ServerIdentity, now: ServerIdentity) -> None:
        """For `Store.on_reconnect`: another server or history may lack what was confirmed, so send it all again."""
        if (before.run_id, before.master_replid) != (now.run_id, now.master_replid):
            self._failovers += 1
            self._journal.doubt()
        if self._journal.unconfirmed:
            self.nudge()

    async def adopt(self) -> Adopted:
        """Send what dead processes left behind and charge what they were serving; raises when the store is away.

        First their journals, then their boards: if a call is in both, its settlement is the truth.
        """
        settlements = calls = 0
        for lock, paths in self._journal.orphans():
            for path in paths:
                settlements += await self._send(read_entries(path))
                await asyncio.to_thread(path.unlink, missing_ok=True)
            board = lock.with_suffix(".board")
            left = await asyncio.to_thread(read_board, board)
            calls += await self._send(left.entries)
            for account, rids in left.others.items():
                await self._lapse(account, rids)
                calls += len(rids)
            await asyncio.to_thread(board.unlink, missing_ok=True)
            await asyncio.to_thread(lock.unlink, missing_ok=True)
        return Adopted(settlements, calls)

    async def close(self) -> None:
        """One last try, then stop; what is left stays in the journal."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None
        if self._journal.unconfirmed:
            await self._pass()

    async def _send_unconfirmed(self) -> None:
        pause = MIN_PAUSE
        while self._journal.unconfirmed:
            await asyncio.sleep(pause)
            pause = MIN_PAUSE if await self._pass() else min(2 * pause, MAX_PAUSE)

    async def _pass(self) -> bool:
        """Send every segment that has something unconfirmed; False when the store is away or was replaced meanwhile."""
        failovers = self._failovers
        for segment in self._journal.rotate():
            if segment.due:
                try:
                    await self._send(self._journal.read(segment))
                except GatewayError:
                    return False
                if failovers != self._failovers:
                    return False  # what the server of before confirmed may be lost again
                self._journal.settle(segment)
        return True

    async def _send(self, entries: Iterable[Entry]) -> int:
        total = 0
        for chunk in _chunks(entries):
            futures = [self._booking.send(entry, segment=ELSEWHERE) for entry in chunk]
            answers = await asyncio.gather(*futures, return_exceptions=True)
            for answer in answers:
                if isinstance(answer, BaseException):
                    raise answer
            total += len(answers)
        return total


def _chunks(entries: Iterable[Entry]) -> Iterator[list[Entry]]:
    iterator = iter(entries)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk
