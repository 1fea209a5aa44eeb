"""Two gateways whose files are in one bucket: each serves the files of the other, and runs batches of them."""

from __future__ import annotations

import json
import os
import signal

from tests.files.bucket_server import bucket_server, needs_program
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.rolling import two_gateways
from tests.processes.served import MODELS, is_alive
from tests.processes.test_batches import LINES, ON, ask, counts, create


@needs_program
async def test_batch_of_a_file_of_another_machine_is_run_although_its_process_is_killed(
    yard: Yard, store_url: str
) -> None:
    async with bucket_server(yard.folder / "bucket") as server:
        one, two = await two_gateways(yard, store_url, models=MODELS + ON + server.table())
        first = await create(one, "quick")

        async def first_is_complete() -> bool:
            return await counts(two, first) == ("completed", LINES)

        await until(first_is_complete)
        _, found = await ask(two, "GET", f"/batches/{first}")
        status, content = await ask(two, "GET", f"/files/{found['input_file_id']}/content")
        assert (status, len(content.splitlines())) == (200, LINES)
        asked = {
            "input_file_id": found["input_file_id"],
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
        }
        status, batch = await ask(two, "POST", "/batches", json=asked)
        assert status == 200, batch
        for _ in range(2):
            pid = await until(lambda: two.batches)
            os.kill(pid, signal.SIGKILL)
            await until(lambda pid=pid: not is_alive(pid))

        async def second_is_complete() -> bool:
            return await counts(one, batch["id"]) == ("completed", LINES)

        await until(second_is_complete)
        _, found = await ask(one, "GET", f"/batches/{batch['id']}")
        _, content = await ask(one, "GET", f"/files/{found['output_file_id']}/content")
        results = [json.loads(line) for line in content.splitlines()]
        assert sorted(one["custom_id"] for one in results) == sorted(f"c{n}" for n in range(LINES))

        async def charged() -> bool:
            return sum(line.amount < 0 for line in await one.charges()) == 2 * LINES

        await until(charged)
        assert (await ask(two, "DELETE", f"/files/{found['input_file_id']}"))[0] == 200
        assert (await ask(one, "GET", f"/files/{found['input_file_id']}/content"))[0] == 404
        assert found["input_file_id"] not in await server.names()
        await one.proved()
