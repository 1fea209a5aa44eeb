"""Runs one batch from its input to its files; a process that was killed at any moment goes on where it was.

::

    data_dir/batches/<id>/input.jsonl     a copy of the input: the caller may delete the file meanwhile
    data_dir/batches/<id>/results.jsonl   see `gateway.batches.results`

The record in the store is written by this process alone. Each step may be repeated: the input is copied under another
name first, the files have ids that follow from the batch's, and the last step is to forget the batch.
"""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path

from gateway.batches.batch import ENDED, Batch, BatchError, Status
from gateway.batches.lines import Examination, examine
from gateway.batches.results import Kept, ResultLog
from gateway.config.values import duration
from gateway.errors import GatewayError, NotFound
from gateway.log import gateway_log
from gateway.runtime.batches.line_call import Budget
from gateway.runtime.batches.line_work import LineWork
from gateway.runtime.batches.output import BatchFiles
from gateway.runtime.batches.places import Places
from gateway.runtime.gateway import Gateway

SAVE_EVERY = 1.0  # seconds between two records of the progress
BOOKED_AT_ONCE = 200  # settlements sent again at once
ANY_SIZE = 2**40

CANCELLED = BatchError("batch_cancelled", "The batch was cancelled before this request was run.")
EXPIRED = BatchError("batch_expired", "The batch expired before this request was run.")
OUTCOMES: dict[str, Status] = {CANCELLED.code: "cancelled", EXPIRED.code: "expired"}  # of other reasons: failed


class BatchRun:
    """One batch in this process. `stop` is set when the process is to end."""

    def __init__(
        self, gateway: Gateway, batch: Batch, files: BatchFiles, places: Places, folder: Path, stop: asyncio.Event
    ) -> None:
        self._gateway = gateway
        self._batch = batch
        self._files = files
        self._places = places
        self._folder = folder
        self._stop = stop

    async def run(self) -> None:
        """Run it to its end, or until `stop`; after an error of the store or of the disk it is to be run again."""
        batch = self._batch
        if batch.status not in ENDED:
            if batch.outcome is None:
                await self._run_lines()
            if batch.outcome is None:
                return  # the process ends
            await self._finish()
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)
        await self._files.records.close(batch.place, batch.account, batch.id)

    async def _run_lines(self) -> None:
        """Run what is left of the lines; after that the batch has an outcome, unless the process is to end."""
        batch = self._batch
        await asyncio.to_thread(self._folder.mkdir, mode=0o700, parents=True, exist_ok=True)
        try:
            path = await self._files.fetch_input(batch, self._folder / "input.jsonl")
        except NotFound as error:
            self._refuse(BatchError("file_not_found", error.message, "input_file_id"))
            return
        found = await self._examine(path)
        if found.errors and batch.status == "validating":
            self._refuse(*found.errors)
            return
        if batch.status == "validating":
            batch.status, batch.in_progress_at, batch.total = "in_progress", int(time.time()), len(found)
            await self._files.records.save(batch)
        log, kept = await asyncio.to_thread(ResultLog.open, self._folder / "results.jsonl", settled=batch.settled)
        try:
            await self._take_up(kept)
            work = LineWork(self._gateway, batch, self._places, log, Budget(batch.max_cost, kept.cost), self._stop)
            await self._work(work, found, path, kept.numbers)
        finally:
            log.close()

    async def _examine(self, path: Path) -> Examination:
        """The lines of the input. Those of a batch that runs were valid by the limits of then."""
        batch, settings = self._batch, self._gateway.settings.batches
        is_new = batch.status == "validating"
        return await asyncio.to_thread(
            examine,
            path,
            batch.endpoint,
            most_lines=settings.max_lines if is_new else batch.total,
            longest=settings.max_line if is_new else ANY_SIZE,
        )

    async def _take_up(self, kept: Kept) -> None:
        """Go on with what an earlier process has written; settlements that it had not journaled are charged now."""
        batch = self._batch
        batch.completed, batch.failed, batch.cost = kept.completed, len(kept.numbers) - kept.completed, kept.cost
        for start in range(0, len(kept.entries), BOOKED_AT_ONCE):
            entries = kept.entries[start : start + BOOKED_AT_ONCE]
            for reason in await self._gateway.ledger.book_refused(batch.account, entries):
                if reason:
                    gateway_log.error("%s: a settlement was refused: %s", batch.id, reason)

    async def _work(self, work: LineWork, found: Examination, path: Path, done: set[int]) -> None:
        watching = asyncio.create_task(self._watch(work))
        file = await asyncio.to_thread(path.open, "rb")
        try:
            is_done = await work.run(found, file, done)
        finally:
            file.close()
            watching.cancel()
            await asyncio.wait([watching])
        if is_done:
            stopped = self._batch.stopped
            self._batch.outcome = "completed" if stopped is None else OUTCOMES.get(stopped.code, "failed")
        await self._save_progress(work)

    async def _watch(self, work: LineWork) -> None:
        """Store the progress, and notice that the batch was cancelled or has expired."""
        batch = self._batch
        while True:
            try:
                _, cancelled_at = await self._files.records.find(batch.account, batch.id)
                if cancelled_at is not None:
                    work.end(CANCELLED)
                elif batch.expires_at <= time.time():
                    work.end(EXPIRED)
                await self._save_progress(work)
            except NotFound:
                work.end(CANCELLED)
            except (GatewayError, OSError) as error:
                gateway_log.warning("%s: its progress cannot be stored: %s", batch.id, error)
            await asyncio.sleep(SAVE_EVERY)

    async def _save_progress(self, work: LineWork) -> None:
        """Sync the log, then store how far it is. What it has up to there was journaled a step after it was written."""
        size = work.log.size
        await asyncio.to_thread(work.log.sync)
        self._batch.settled = size
        work.note_held()
        await self._files.records.save(self._batch)

    # Its end ---------------------------------------------------------------------------------------------------------

    def _refuse(self, *errors: BatchError) -> None:
        """The input cannot be run."""
        self._batch.errors, self._batch.outcome = errors, "failed"

    async def _finish(self) -> None:
        """Make the files of the results; then the batch has ended."""
        batch, records = self._batch, self._files.records
        assert batch.outcome is not None
        if batch.total:
            batch.status, batch.finalizing_at = "finalizing", batch.finalizing_at or int(time.time())
            await records.save(batch)
            await self._files.write_results(batch, self._folder)
        if batch.outcome == "failed" and batch.stopped is not None:
            batch.errors = (batch.stopped,)
        batch.status = batch.outcome
        setattr(batch, f"{batch.status}_at", int(time.time()))
        await records.save(batch, keep=int(duration(self._gateway.settings.batches.keep).total_seconds()))
        self._gateway.metrics.inc("gateway_batches_ended", (batch.status,))
