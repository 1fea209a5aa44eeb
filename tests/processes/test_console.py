"""The console process of `gateway serve`: its port, its restart, its reload."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served, children, command_of, is_alive

pytestmark = pytest.mark.slow


def console(gateway: Served) -> int:
    """The console process; 0 while there is none."""
    found = [pid for pid in children(gateway.pid) if "gateway.runtime.console" in command_of(pid)]
    return found[0] if found else 0


async def ask(port: int, path: str, token: str = "", **body: Any) -> tuple[int, Any]:
    """Status and document of a request to the admin API."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    method = "POST" if body else "GET"
    async with (
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20.0)) as session,
        session.request(method, f"http://127.0.0.1:{port}{path}", headers=headers, json=body or None) as response,
    ):
        return response.status, await response.json()


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-4", "console.md#first-steps-1")
async def test_killed_console_is_started_again_on_the_same_port_and_asks_for_the_first_operator_until_there_is_one(
    yard: Yard,
) -> None:
    [port] = free_ports(1)
    gateway = yard.make(console_port=port)
    await gateway.started()
    hint = f"gateway users create EMAIL --operator --config {gateway.config}"
    await until(lambda: hint in gateway.text)
    created = await gateway.command("users", "create", "ann@example.com", "--operator")
    token = (await gateway.command("tokens", "create", "ci", "--scopes", "read,accounts,credits"))["token"]
    assert (await ask(port, "/admin/v1/accounts"))[0] == 401
    assert (await ask(port, "/admin/v1/accounts", token))[0] == 200
    killed = console(gateway)
    os.kill(killed, signal.SIGKILL)
    await until(lambda: not is_alive(killed))
    assert (await ask(port, "/admin/v1/accounts", token))[0] == 200  # the connection waited; the database is open
    assert console(gateway) not in (0, killed)
    assert (await gateway.metrics())["gateway_console_restarts_total"] == 1
    assert gateway.text.count(hint) == 1, "there is an operator"
    assert created["link"].rpartition("=")[2] not in gateway.text

    gateway.configure(MODELS + "\n[groups.vip]\nrpm = 5\n")
    gateway.process.send_signal(signal.SIGHUP)

    async def opened() -> bool:
        status, _ = await ask(port, "/admin/v1/accounts", token, name="acme", group="vip")
        return status == 201

    await until(opened)


@pytest.mark.holds("operations/history.md#history-3")
async def test_pages_and_the_importer_wait_for_calls_and_emails_of_the_console_are_counted(yard: Yard) -> None:
    port, mail = free_ports(2)
    server = f'\n[mail]\nhost = "127.0.0.1"\nport = {mail}\nfrom = "gw@example.com"\n'  # at which nobody listens
    gateway = yard.make(MODELS + server, console_port=port)
    gateway.environment["LOW_PRIORITY"] = "1"
    await gateway.started()
    await until(lambda: gateway.importer and console(gateway))
    assert (await ask(port, "/admin/v1/accounts"))[0] == 401  # the threads of the database run

    def niceness(pid: int) -> set[int]:
        return {os.getpriority(os.PRIO_PROCESS, int(thread.name)) for thread in Path(f"/proc/{pid}/task").iterdir()}

    own = os.getpriority(os.PRIO_PROCESS, 0)
    assert min(niceness(gateway.workers[0])) == own
    assert niceness(gateway.importer) == {min(19, own + 10)}
    assert niceness(console(gateway)) == {min(19, own + 5)}

    token = (await gateway.command("tokens", "create", "ci", "--scopes", "users"))["token"]
    status, _ = await ask(port, "/admin/v1/invitations", token, email="ann@example.com")
    assert status == 201

    async def counted() -> bool:
        return (await gateway.metrics()).get("gateway_emails_total{result=failed}") == 1

    await until(counted)
