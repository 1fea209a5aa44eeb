"""Batches of a gateway as operators run it: their process is killed, and started by a reload."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from typing import Any

import aiohttp
import pytest

from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Serve, Yard
from tests.processes.served import MODELS, Served, is_alive

ON = "\n[batches]\nenabled = true\naccount_concurrency = 3\n"
LINES = 12


async def ask(gateway: Served, method: str, path: str, **options: Any) -> tuple[int, Any]:
    """Status and JSON, or bytes, of a request."""
    headers = {"Authorization": f"Bearer {gateway.api_key}"}
    async with (
        aiohttp.ClientSession() as session,
        session.request(method, f"{gateway.base_url}{path}", headers=headers, **options) as response,
    ):
        content = await response.read()
        is_json = response.headers["Content-Type"] == "application/json"
        return response.status, json.loads(content) if is_json else content


async def create(gateway: Served, model: str) -> str:
    """The id of a new batch."""
    body = {"model": model, "messages": [{"role": "user", "content": "Hi"}]}
    url = "/v1/chat/completions"
    lines = [json.dumps({"custom_id": f"c{n}", "method": "POST", "url": url, "body": body}) for n in range(LINES)]
    form = aiohttp.FormData({"purpose": "batch"})
    form.add_field("file", "\n".join(lines).encode(), filename="in.jsonl")
    status, file = await ask(gateway, "POST", "/files", data=form)
    assert status == 200, file
    asked = {"input_file_id": file["id"], "endpoint": url, "completion_window": "24h"}
    status, batch = await ask(gateway, "POST", "/batches", json=asked)
    assert status == 200, batch
    return str(batch["id"])


async def counts(gateway: Served, batch: str) -> tuple[str, int]:
    """The status of a batch, and how many of its lines are done."""
    _, found = await ask(gateway, "GET", f"/batches/{batch}")
    return found["status"], found["request_counts"]["completed"]


async def test_batch_goes_on_after_its_process_and_the_gateway_were_killed(serve: Serve) -> None:
    gateway = await serve(MODELS + ON)
    batch = await create(gateway, "slow")

    async def progressed(least: int) -> bool:
        return (await counts(gateway, batch))[1] >= least

    await until(lambda: progressed(1))
    pid = gateway.batches
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not is_alive(pid) and gateway.batches)
    await until(lambda: progressed(4))
    pids = [gateway.pid, gateway.batches]
    os.kill(gateway.pid, signal.SIGKILL)
    await gateway.ended()
    await until(lambda: not any(map(is_alive, pids)))
    await gateway.started()

    async def completed() -> bool:
        return await counts(gateway, batch) == ("completed", LINES)

    await until(completed)
    _, found = await ask(gateway, "GET", f"/batches/{batch}")
    _, content = await ask(gateway, "GET", f"/files/{found['output_file_id']}/content")
    results = [json.loads(line) for line in content.splitlines()]
    assert sorted(one["custom_id"] for one in results) == sorted(f"c{n}" for n in range(LINES))

    async def charged() -> bool:
        return sum(line.amount < 0 for line in await gateway.charges()) == LINES

    await until(charged)
    await gateway.proved()


async def test_running_line_of_a_batch_is_listed_and_cancelled_as_a_call(yard: Yard) -> None:
    [port] = free_ports(1)
    gateway = yard.make(MODELS + ON, console_port=port)
    await gateway.started()
    gateway.create_key()
    batch = await create(gateway, "slow")

    async def cancelled() -> Any:
        """A running call that was cancelled; None while the console starts, or if the call has just ended."""
        listed = await asyncio.to_thread(gateway.run, "calls", "list", "--json")
        calls = json.loads(listed.stdout) if listed.returncode == 0 else []
        for call in (call for call in calls if call["session"] == batch):
            done = await asyncio.to_thread(gateway.run, "calls", "cancel", call["request_id"])
            if done.returncode == 0:
                return call
        return None

    call = await until(cancelled)
    assert (call["endpoint"], call["model"]) == ("chat", "slow")

    async def failed() -> bool:
        _, found = await ask(gateway, "GET", f"/batches/{batch}")
        return bool(found["request_counts"]["failed"] == 1)

    await until(failed)
    await gateway.command("batches", "cancel", batch)

    async def ended() -> Any:
        _, found = await ask(gateway, "GET", f"/batches/{batch}")
        return found if found["status"] == "cancelled" else None

    found = await until(ended)
    _, content = await ask(gateway, "GET", f"/files/{found['error_file_id']}/content")
    codes = [
        json.loads(one)["response"]["body"]["error"]["code"] for one in content.splitlines() if b"status_code" in one
    ]
    assert codes == ["request_cancelled"]
    await gateway.proved()


@pytest.mark.holds("operations/batches.md#the-process-1")
async def test_reload_starts_the_process_that_runs_batches(serve: Serve) -> None:
    gateway = await serve(MODELS)
    assert gateway.batches == 0
    assert (await ask(gateway, "GET", "/files"))[0] == 404
    gateway.configure(MODELS + ON)
    os.kill(gateway.pid, signal.SIGHUP)

    async def served() -> bool:
        return (await ask(gateway, "GET", "/files"))[0] == 200

    await until(served)
    batch = await create(gateway, "quick")

    async def completed() -> bool:
        return await counts(gateway, batch) == ("completed", LINES)

    await until(completed)
    pid = gateway.batches
    assert pid
    gateway.configure(MODELS.replace("[models.quick]", "[models.later]") + ON)
    os.kill(gateway.pid, signal.SIGHUP)

    async def knows_later() -> bool:
        return (await gateway.chat("later")).status == 200

    await until(knows_later)
    batch = await create(gateway, "later")
    await until(completed)
    assert gateway.batches == pid
    await gateway.proved()
