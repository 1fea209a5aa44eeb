"""Finds the batches of this machine, runs them side by side, and deletes what has expired.

A lock on the folder of the work makes this the only process that runs batches of this machine: the kernel frees it when
the process ends, however it ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from collections import Counter
from pathlib import Path

from gateway.batches.records import BatchRecords
from gateway.batches.work import work_folder
from gateway.config.values import duration
from gateway.errors import Draining, GatewayError, NotFound
from gateway.files.records import FileRecords
from gateway.files.storage import folder_id
from gateway.log import gateway_log
from gateway.runtime.batches.batch_run import BatchRun
from gateway.runtime.batches.output import BatchFiles
from gateway.runtime.batches.places import Places
from gateway.runtime.gateway import Gateway

LOOK_EVERY = 0.5  # seconds
SWEEP_EVERY = 30.0  # seconds
LEFTOVERS_EVERY = 3_600.0  # seconds; the first time when the process starts
SWEPT = 200  # files, and records of batches, that are deleted in one sweep
MOST_RUNS, MOST_OF_ACCOUNT = 16, 2  # batches that run side by side
SEEN = 500  # open batches among which those are chosen
UNRECORDED = 60  # seconds that a batch may be announced without a record
AGAIN_AFTER = 2.0  # seconds after a run that failed
END_WITHIN, CUT_WITHIN = 5.0, 3.0  # seconds for running lines to end, and to be cut, when the process ends


class Runner:
    """Runs batches until `stop` is set."""

    def __init__(self, gateway: Gateway, stop: asyncio.Event) -> None:
        self._gateway = gateway
        self._stop = stop
        self._folder = work_folder(gateway.settings)
        self._records = BatchRecords(gateway.store)
        self._files = FileRecords(gateway.store)
        self._places = Places(lambda: gateway.settings.batches)
        self._runs: dict[tuple[str, str], asyncio.Task[None]] = {}
        self._swept = 0.0
        self._leftovers_swept = -LEFTOVERS_EVERY

    async def run(self) -> None:
        """Run batches; returns when running lines have ended after `stop`."""
        place = await asyncio.to_thread(folder_id, self._folder)
        lock = await self._lock()
        if lock is None:
            return
        try:
            while not self._stop.is_set():
                try:
                    await self._look(place)
                    await self._sweep(place)
                except GatewayError as error:
                    gateway_log.warning("batches: %s %s", error.message, error.log_text())
                await self._sleep(LOOK_EVERY)
            await self._end()
        finally:
            os.close(lock)

    async def _lock(self) -> int | None:
        """The lock of the folder; None if the process is to end before it is free."""
        descriptor = os.open(self._folder / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        while not self._stop.is_set():
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return descriptor
            except BlockingIOError:
                await self._sleep(LOOK_EVERY)
        os.close(descriptor)
        return None

    async def _look(self, place: str) -> None:
        """Begin batches that have a turn."""
        found = await self._records.open_batches(place, most=SEEN)
        self._gateway.metrics.set("gateway_batches_open", (), float(len(found)))
        of_account = Counter(account for account, _ in self._runs)
        for account, batch_id, created_at in found:
            if (account, batch_id) in self._runs or of_account[account] >= MOST_OF_ACCOUNT:
                continue
            if len(self._runs) >= MOST_RUNS:
                return
            of_account[account] += 1
            run = asyncio.create_task(self._run(place, account, batch_id, created_at))
            self._runs[account, batch_id] = run

    async def _run(self, place: str, account: str, batch_id: str, created_at: int) -> None:
        try:
            batch, _ = await self._records.find(account, batch_id)
            files = BatchFiles(self._records, self._files, self._gateway.settings)
            await BatchRun(self._gateway, batch, files, self._places, self._of(batch_id), self._stop).run()
        except NotFound:
            if created_at < time.time() - UNRECORDED:
                await self._close(place, account, batch_id)
        except Exception as error:
            # The runner's edge: the store is away, the disk is full, or a defect. The batch goes on where it was.
            known = isinstance(error, GatewayError | OSError)
            text = (error.log_text() or error.message) if isinstance(error, GatewayError) else error
            gateway_log.error("%s is tried again: %s", batch_id, text, exc_info=None if known else error)
            await self._sleep(AGAIN_AFTER)
        finally:
            del self._runs[account, batch_id]

    async def _close(self, place: str, account: str, batch_id: str) -> None:
        try:
            await self._records.close(place, account, batch_id)
        except GatewayError:
            return  # it is found again

    def _of(self, batch_id: str) -> Path:
        return self._folder / batch_id

    async def _sweep(self, place: str) -> None:
        """Delete files and records whose time is over, a bounded number at a time."""
        now = time.monotonic()
        if self._swept and now - self._swept < SWEEP_EVERY:
            return
        self._swept = now
        files = BatchFiles(self._records, self._files, self._gateway.settings)
        own = await files.storage.place()
        for account, file_id in await self._files.expired(own, most=SWEPT):
            await files.storage.delete(file_id)
            await self._files.forget(own, account, file_id)
        await self._files.forget_foreign(own, most=SWEPT)
        await self._records.expired(place, most=SWEPT)
        keep = int(duration(self._gateway.settings.batches.keep).total_seconds())
        await self._records.expire_foreign(place, most=SWEPT, keep=keep)
        if now - self._leftovers_swept >= LEFTOVERS_EVERY:
            self._leftovers_swept = now
            await files.storage.sweep()

    async def _end(self) -> None:
        """Wait for the lines that run, then cut them: a line without an answer runs again later."""
        if self._runs:
            await asyncio.wait(self._runs.values(), timeout=END_WITHIN)
        if self._runs:
            self._gateway.active_calls.cut_all(Draining())
            await asyncio.wait(self._runs.values(), timeout=CUT_WITHIN)

    async def _sleep(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stop.wait()
        except TimeoutError:
            pass
