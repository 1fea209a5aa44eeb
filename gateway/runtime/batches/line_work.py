"""Runs the lines of one batch: several at a time, each until it has one result."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import BinaryIO

from gateway.batches.batch import Batch, BatchError
from gateway.batches.lines import Examination, Line
from gateway.batches.results import Result, ResultLog
from gateway.inference.pipeline import Pipeline
from gateway.ledger.gather_all import gather_bounded
from gateway.log import gateway_log
from gateway.runtime.batches.line_call import Attempt, Budget, LineCalls
from gateway.runtime.batches.places import Places
from gateway.runtime.batches.result_lines import answered, not_run
from gateway.runtime.batches.verdict import OK, pause_before, verdict_of
from gateway.runtime.gateway import Gateway

TOGETHER = 500  # results that are written in one step of the event loop
DISK_AGAIN = 1.0  # seconds before a full disk is tried again
STEP = 0.25  # seconds in which a waiting line notices the end
SHORTEST_WAIT = 0.05  # seconds


class LineWork:
    """The lines of one batch that have no result, and the log of the results. `stop`: the process is to end."""

    def __init__(
        self, gateway: Gateway, batch: Batch, places: Places, log: ResultLog, budget: Budget, stop: asyncio.Event
    ) -> None:
        self.log = log
        self._gateway = gateway
        self._batch = batch
        self._places = places
        self._budget = budget
        self._stop = stop
        self._halt = asyncio.Event()  # no further line is begun
        self._calls = LineCalls(gateway, Pipeline(gateway), batch, budget, self._settled)
        self._not_before = 0.0  # by the clock of the loop: a limit was reached
        self._written: set[int] = set()  # running lines whose result was written when their call was settled
        self._unwritten: list[Result] = []  # the disk takes no more
        self._error: Exception | None = None  # of a defect, or of the file

    async def run(self, found: Examination, file: BinaryIO, done: set[int]) -> bool:
        """Give each line a result; False if the process is to end before. Errors of the file are raised at the end."""
        self._found, self._file = found, file
        self._left: Iterator[int] = (index for index, number in enumerate(found.numbers) if number not in done)
        workers = min(self._gateway.settings.batches.account_concurrency, len(found) - len(done))
        # Not a group that cancels: a call that goes on without its line would be charged and have no result.
        await gather_bounded((self._work() for _ in range(workers)), max(workers, 1))
        if self._error is not None:
            raise self._error
        if self._batch.stopped is None and self._stop.is_set() and next(self._left, None) is not None:
            return False
        await self._skip_rest()
        return True

    def note_held(self) -> None:
        """Write what the running lines hold into the batch."""
        self._batch.held = self._budget.held

    def end(self, reason: BatchError) -> None:
        """Begin no further line; the others get this reason."""
        if self._batch.stopped is None:
            self._batch.stopped = reason
        self._halt.set()

    @property
    def _ends(self) -> bool:
        return self._stop.is_set() or self._halt.is_set()

    async def _work(self) -> None:
        """Run one line after the other."""
        try:
            while not self._ends:
                index = next(self._left, None)
                if index is None or not await self._run_line(index):
                    return
        except Exception as error:
            # The other lines end first; then the batch is run again from its log.
            self._error = error
            self._halt.set()

    async def _run_line(self, index: int) -> bool:
        """Run a line until it has a result; False if the batch or the process ends before that."""
        line, tries = self._found.read(self._file, index), 0
        while True:
            await self._pause(max(self._not_before - asyncio.get_running_loop().time(), self._places.pace.delay()))
            async with self._places.place(self._batch.account):
                if self._ends:
                    self._left = _with(index, self._left)
                    return False
                attempt = await self._calls.run(line)
                await self._write_unwritten()
            if line.number in self._written:
                self._written.discard(line.number)
                return True
            tries += 1
            if not await self._is_tried_again(attempt, tries):
                self._write(answered(line, attempt))
                await self._write_unwritten()
                return True

    async def _is_tried_again(self, attempt: Attempt, tries: int) -> bool:
        """Wait as long as the answer asks for; False if the answer is final."""
        verdict = verdict_of(attempt)
        if verdict == "final" or (verdict == "again" and tries >= self._gateway.settings.batches.attempts):
            return False
        self._gateway.metrics.inc("gateway_batch_lines", ("retried",))
        if verdict == "stop":
            assert attempt.error is not None
            self.end(BatchError(attempt.error.code or "error", attempt.error.message))
        elif verdict == "wait":
            until = asyncio.get_running_loop().time() + max(pause_before(attempt, 0), SHORTEST_WAIT)
            self._not_before = max(self._not_before, until)
        else:
            await self._pause(pause_before(attempt, tries))
        return True

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the end of the batch or of the process."""
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0 and not self._ends:  # noqa: ASYNC110 - two events
            await asyncio.sleep(min(left, STEP))

    # Results ---------------------------------------------------------------------------------------------------------

    def _settled(self, line: Line, attempt: Attempt) -> None:
        """A call was settled in this step of the event loop: its answer is written before its settlement."""
        if attempt.status == OK or attempt.cost:
            self._written.add(line.number)
            self._write(answered(line, attempt))

    def _write(self, result: Result) -> None:
        try:
            self.log.append(result)
        except OSError as error:
            gateway_log.error("%s: a result cannot be written: %s", self._batch.id, error)
            self._unwritten.append(result)
            return
        self._count(result)

    def _count(self, result: Result) -> None:
        batch = self._batch
        batch.completed += result.is_ok
        batch.failed += not result.is_ok
        batch.cost += result.cost
        self._budget.spent += result.cost
        self._gateway.metrics.inc("gateway_batch_lines", ("completed" if result.is_ok else "failed",))

    async def _write_unwritten(self) -> None:
        """Wait for the disk: a line that was charged must not lose its result, and the others wait with it."""
        while self._unwritten:
            try:
                self.log.append(self._unwritten[0])
            except OSError:
                await asyncio.sleep(DISK_AGAIN)
                continue
            self._count(self._unwritten.pop(0))

    async def _skip_rest(self) -> None:
        """Write a result for each line that was not run."""
        reason = self._batch.stopped
        if reason is None:
            return
        for written, index in enumerate(self._left, start=1):
            self._write(not_run(self._found.read(self._file, index), reason))
            if written % TOGETHER == 0:
                await self._write_unwritten()
                await asyncio.sleep(0)
        await self._write_unwritten()


def _with(index: int, left: Iterator[int]) -> Iterator[int]:
    """The indexes that are left, and that of a line which was taken and has no result."""
    yield index
    yield from left
