"""Running calls over the admin API: the calls of all workers are listed, and one is cancelled."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from decimal import Decimal
from typing import Any

import aiohttp
import pytest

from gateway.amounts import NANO
from gateway.ledger import LedgerLine
from gateway.testing.ports import free_ports
from tests.polling import ENDS_WITHIN, until
from tests.processes.conftest import Yard
from tests.processes.rolling import two_gateways
from tests.processes.served import Served

pytestmark = pytest.mark.slow


async def ask(port: int, method: str, path: str, token: str) -> tuple[int, Any]:
    """Status and document of a request to the admin API."""
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20.0)) as session,
        session.request(
            method, f"http://127.0.0.1:{port}/admin/v1{path}", headers={"Authorization": f"Bearer {token}"}
        ) as response,
    ):
        return response.status, await response.json()


def over(port: int, token: str, *words: str) -> Any:
    """The JSON that a command prints over the server."""
    variables = {**os.environ, "GATEWAY_SERVER": f"http://127.0.0.1:{port}", "GATEWAY_TOKEN": token}
    command = [sys.executable, "-m", "gateway", *words, "--json"]
    return json.loads(
        subprocess.run(command, env=variables, capture_output=True, check=True, timeout=ENDS_WITHIN).stdout
    )


async def charge(gateway: Served, request_id: str) -> LedgerLine | None:
    """The ledger line of a call that was charged."""
    return next((line for line in await gateway.charges() if line.request_id == request_id), None)


@pytest.mark.holds("admin-api.md#running-calls-1", "admin-api.md#running-calls-2")
async def test_calls_of_all_workers_are_listed_and_one_is_cancelled_and_charged(yard: Yard) -> None:
    [port] = free_ports(1)
    gateway = yard.make(console_port=port, workers=2)
    await gateway.started(workers=2)
    gateway.create_key()
    await gateway.command("accounts", "create", "umbra")
    token = (await gateway.command("tokens", "create", "ops", "--scopes", "accounts"))["token"]
    stranger = (await gateway.command("tokens", "create", "other", "--scopes", "accounts", "--account", "umbra"))[
        "token"
    ]
    streams = await gateway.flowing(6, "endless")
    wanted = {stream.request_id for stream in streams}

    pages: list[Any] = []
    cursor: str | None = ""
    while cursor is not None:
        status, page = await ask(port, "GET", f"/calls?limit=4&cursor={cursor}", token)
        assert (status, page["silent_workers"]) == (200, 0)
        pages.append(page["data"])
        cursor = page["next_cursor"]
    listed = [call for page in pages for call in page]
    assert [len(page) for page in pages] == [4, 2]
    assert {call["request_id"] for call in listed} == wanted
    assert [call["started"] for call in listed] == sorted(call["started"] for call in listed)
    first = listed[0]
    assert (first["account"], first["model"], first["provider"], first["endpoint"]) == (
        "test",
        "endless",
        "fake",
        "chat",
    )
    assert first["tokens_out"] > 0
    assert 0 < Decimal(first["cost"]) <= Decimal(first["held"])

    [oldest], over_server = await asyncio.gather(
        gateway.command("calls", "list", "--account", "test", "--limit", "1"),
        asyncio.to_thread(over, port, token, "calls", "list"),
    )
    assert oldest["request_id"] == first["request_id"]
    assert {call["request_id"] for call in over_server} == wanted

    assert (await ask(port, "GET", "/calls", stranger))[1]["data"] == []
    path = f"/calls/{first['request_id']}/cancel"
    assert (await ask(port, "POST", path, stranger))[0] == 404
    status, cancelled = await ask(port, "POST", path, token)
    assert (status, cancelled["request_id"]) == (200, first["request_id"])
    stream = next(stream for stream in streams if stream.request_id == first["request_id"])
    await stream.ended()
    frame = json.loads(stream.text.rpartition("data: ")[2])
    assert frame["error"]["code"] == "request_cancelled"
    line = await until(lambda: charge(gateway, first["request_id"]))
    assert line.meta["outcome"] == "request_cancelled"
    assert Decimal(-line.amount) / NANO >= Decimal(cancelled["cost"]) >= Decimal(first["cost"])
    assert (await ask(port, "POST", path, token))[0] == 404
    second = await gateway.command("calls", "cancel", listed[1]["request_id"])
    assert second["request_id"] == listed[1]["request_id"]
    for other in streams:
        other.leave()
    by_command, event = [one for one in await gateway.command("audit-trail") if one["action"] == "calls.cancel"]
    assert (by_command["actor"].partition(":")[0], event["actor"].partition(":")[0]) == ("cli", "token")
    assert (event["object"], event["account"]) == (f"call:{first['request_id']}", "test")


@pytest.mark.holds("admin-api.md#running-calls-1")
async def test_calls_of_all_machines_are_listed_by_each_and_one_is_cancelled_from_another(
    yard: Yard, store_url: str
) -> None:
    ports = free_ports(2)
    one, two = await two_gateways(yard, store_url, console_ports=ports)
    token = (await one.command("tokens", "create", "ops", "--scopes", "accounts"))["token"]
    [here], [there] = await one.flowing(1, "endless"), await two.flowing(1, "endless")
    status, page = await ask(ports[0], "GET", "/calls", token)
    assert (status, page["silent_workers"], page["silent_machines"]) == (200, 0, 0)
    assert {call["request_id"] for call in page["data"]} == {here.request_id, there.request_id}
    assert len({call["machine"] for call in page["data"]}) == 2
    await until(lambda: (two.data_dir / "console.socket").exists())
    listed = await two.command("calls", "list")
    assert [(call["request_id"], call["machine"]) for call in listed] == [
        (call["request_id"], call["machine"]) for call in page["data"]
    ]
    status, cancelled = await ask(ports[0], "POST", f"/calls/{there.request_id}/cancel", token)
    assert (status, cancelled["request_id"]) == (200, there.request_id)
    await there.ended()
    assert "request_cancelled" in there.text
    assert (await ask(ports[0], "POST", f"/calls/{there.request_id}/cancel", token))[0] == 404
    here.leave()
