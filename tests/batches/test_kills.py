"""Runners that are killed: each line of a batch has one result and one charge, and the ledger is exact."""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from gateway.batches.batch import ENDED, WINDOW, Batch, new_batch_id
from gateway.batches.records import BatchRecords
from gateway.batches.work import work_place
from gateway.files.records import FileRecords, StoredFile, new_file_id
from gateway.files.storage import LocalFiles
from gateway.ledger import Ledger
from gateway.runtime.worker_recovery import WorkerRecovery
from tests.batches.forked_runners import POINTS, settings_of
from tests.delays import process_runs_for
from tests.polling import until
from tests.world import UNIT, OpenWorld, World

pytestmark = pytest.mark.slow

SEED = 20_261_130
KILLS = 100
LINES = 1_000


class Site:
    """A batch on a store, the supervisor's recovery beside it, and runners that live and die."""

    def __init__(self, w: World, folder: Path, runners: asyncio.subprocess.Process) -> None:
        self.w = w
        self.folder = folder
        self.recovery = WorkerRecovery(w.store, folder / "journal")
        self._runners = runners
        self._settings = settings_of(folder)
        self._records = BatchRecords(w.store)
        self._files = LocalFiles(self._settings.files_dir)
        self._lines: dict[str, int] = {}

    async def tell(self, command: str) -> None:
        """One command to the process with the runners, and its answer."""
        assert self._runners.stdin is not None
        assert self._runners.stdout is not None
        self._runners.stdin.write(f"{command}\n".encode())
        async with asyncio.timeout(60.0):
            assert await self._runners.stdout.readline()
        if command in ("kill", "wait"):
            self.recovery.look()

    async def batch(self, lines: int) -> Batch:
        """A batch of so many lines, each with its own number of words and so with its own cost."""
        key = await self.w.caller(balance=100 * UNIT)
        bodies = [
            {"model": "m", "messages": [{"role": "user", "content": "word " * (1 + number % 17)}]}
            for number in range(lines)
        ]
        content = b"".join(
            json.dumps({"custom_id": f"c{n}", "method": "POST", "url": "/v1/chat/completions", "body": body}).encode()
            + b"\n"
            for n, body in enumerate(bodies)
        )
        now, place = int(time.time()), await self._files.place()
        file = StoredFile(new_file_id(), len(content), now, now + WINDOW, "in.jsonl", "batch", place)

        async def pieces() -> AsyncIterator[bytes]:
            yield content

        await self._files.save(file.id, pieces())
        await FileRecords(self.w.store).add("acme", file)
        batch = Batch(
            id=new_batch_id(),
            account="acme",
            key=key.id,
            user="",
            shows_cost=False,
            address="127.0.0.1",
            place=await work_place(self._settings),
            endpoint="/v1/chat/completions",
            input_file_id=file.id,
            created_at=now,
            expires_at=now + WINDOW,
        )
        await self._records.add(batch, most_open=100)
        self._lines[batch.id] = lines
        return batch

    async def state(self, batch: Batch) -> Batch:
        """The batch as it is stored now."""
        return (await self._records.find("acme", batch.id))[0]

    def written(self, batch: Batch) -> int:
        """Bytes of results so far."""
        path = self.folder / "batches" / batch.id / "results.jsonl"
        return path.stat().st_size if path.exists() else 0

    async def results(self, batch: Batch) -> list[dict[str, object]]:
        """The lines of both files of a batch that has ended."""
        ended, found = await self.state(batch), []
        for file_id in (ended.output_file_id, ended.error_file_id):
            if file_id is not None:
                content = await self._files.open(file_id)
                assert content is not None
                text = b""
                while piece := await content.read():
                    text += piece
                await content.close()
                found += [json.loads(line) for line in text.splitlines()]
        return found

    async def proved(self, *batches: Batch) -> None:
        """Each line has one result and the charge of its usage; nothing is held, and nothing else is paid."""
        ledger, paid = Ledger(self.w.store, {}), Counter[str]()

        async def released() -> bool:
            return (await self.w.accounts.show("acme")).held == 0

        await until(released)
        async for line in ledger.lines("acme"):
            if line.kind in ("use", "adj", "reclaim"):
                paid[line.request_id] -= line.amount
        owed: dict[str, int] = {}
        for batch in batches:
            results = await self.results(batch)
            assert Counter(one["custom_id"] for one in results) == Counter(
                f"c{n}" for n in range(self._lines[batch.id])
            )
            for one in results:
                response = one["response"]
                assert isinstance(response, dict)
                usage = response["body"]["usage"]
                owed[response["request_id"]] = 500 * usage["prompt_tokens"] + 1_000 * usage["completion_tokens"]
        assert {name: amount for name, amount in paid.items() if amount} == {
            name: amount * 1_000 for name, amount in owed.items()
        }
        await self.w.proved()


@asynccontextmanager
async def site(world: OpenWorld, valkey: Path, folder: Path) -> AsyncIterator[Site]:
    """A site with no runner yet."""
    runners = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.batches.forked_runners", str(valkey), str(folder)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        async with world() as w:
            found = Site(w, folder, runners)
            recovering = asyncio.create_task(found.recovery.run())
            try:
                yield found
            finally:
                recovering.cancel()
                await asyncio.wait([recovering])
                await found.recovery.close()
    finally:
        assert runners.stdin is not None
        runners.stdin.close()
        await runners.wait()


async def has_ended(found: Site, batch: Batch) -> bool:
    """Whether the batch is complete."""
    return (await found.state(batch)).status in ENDED


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.holds("operations/batches.md#when-the-process-ends-1")
async def test_line_is_charged_once_wherever_its_runner_ends(
    world: OpenWorld, valkey: Path, tmp_path: Path, point: str
) -> None:
    async with site(world, valkey, tmp_path) as found:
        batch = await found.batch(40)
        for number in (1, 2, 1):
            await found.tell(f"go {point} {number}")
            await found.tell("wait")
        await found.tell("go")
        await until(lambda: has_ended(found, batch))
        await found.tell("kill")
        assert (await found.state(batch)).status == "completed"
        await found.proved(batch)


@pytest.mark.timeout(600)
async def test_thousand_lines_are_charged_once_each_although_their_runner_is_killed_a_hundred_times(
    world: OpenWorld, valkey: Path, tmp_path: Path
) -> None:
    chance, kills, batches = random.Random(SEED), 0, list[Batch]()
    async with site(world, valkey, tmp_path) as found:
        while kills < KILLS:
            batch = await found.batch(LINES)
            batches.append(batch)
            while not await has_ended(found, batch):
                await found.tell("go")
                before = found.written(batch)
                if kills < KILLS:
                    await until(
                        lambda batch=batch, before=before: found.written(batch) > before or has_ended(found, batch)
                    )
                    await asyncio.to_thread(process_runs_for, chance.uniform(0.0, 0.08))
                    kills += 1
                else:
                    await until(lambda batch=batch: has_ended(found, batch))
                await found.tell("kill")
        assert [(await found.state(batch)).status for batch in batches] == ["completed"] * len(batches)
        assert len(batches) == 1
        await found.proved(*batches)
