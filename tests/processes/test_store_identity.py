"""The store is the wrong one, was emptied, is full or does not permit something: 503 and not ready, and never 401."""

import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio

from gateway.accounts.pepper import load_pepper
from gateway.store import EmbeddedServer
from tests.polling import until
from tests.processes.conftest import Yard
from tests.processes.served import MODELS, Served, children, command_of

LONG = 30.0  # seconds; a loaded machine starts processes slowly
OTHER_KEY = "sk-" + "x" * 43


@asynccontextmanager
async def own_store(folder: Path) -> AsyncIterator[EmbeddedServer]:
    """A store of the operator's own."""
    server = EmbeddedServer(folder)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def server_says(server: EmbeddedServer, *command: Any, db: int = 0) -> Any:
    """The reply of the store to a command of somebody else."""
    client = redis.asyncio.Redis(unix_socket_path=str(server.socket), db=db)
    try:
        return await client.execute_command(*command)
    finally:
        await client.aclose()


def with_store(gateway: Served, lines: str, models: str = MODELS) -> None:
    """Write the configuration with other lines for the store."""
    head = gateway._head.partition("[store]")[0]
    gateway.config.write_text(f'{head}[store]\ndata_dir = "{gateway.data_dir}"\n{lines}\n{models}', encoding="utf-8")


# Empty the store and give what it held: a call that settles between a copy and the emptying would be in neither.
DUMP_AND_EMPTY = """
local found = {}
for _, name in ipairs(redis.call('KEYS', '*')) do
    found[#found + 1] = name
    found[#found + 1] = redis.call('DUMP', name)
end
redis.call('FLUSHALL')
return found
"""
RESTORE = """
for at = 1, #ARGV, 2 do
    redis.call('RESTORE', ARGV[at], 0, ARGV[at + 1], 'REPLACE')
end
"""


async def is_ready(gateway: Served) -> bool:
    return await gateway.readiness() == 200


async def is_not_ready(gateway: Served) -> bool:
    return await gateway.readiness() == 503


async def stop(gateway: Served) -> None:
    assert gateway.process is not None
    gateway.process.send_signal(signal.SIGTERM)
    assert await gateway.ended(within=LONG) == 0


async def unavailable(gateway: Served) -> None:
    """Known and unknown keys get 503, commands refuse."""
    for key in ("", OTHER_KEY):
        answer = await gateway.chat(key=key)
        assert answer.status == 503, answer.body
    for words in (["accounts", "list"], ["keys", "list"], ["audit"]):
        refused = gateway.run(*words)
        assert refused.returncode == 1, refused.stdout
        assert "the store has lost its identity" in refused.stderr


@pytest.mark.holds("operations/redis.md#the-stores-identity-1")
async def test_emptied_store_is_503_and_not_ready_until_it_is_accepted(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        gateway = await yard.serve(store=f"unix://{server.socket}")
        assert (await gateway.chat()).status == 200
        assert (await gateway.chat(key=OTHER_KEY)).status == 401
        await server_says(server, "FLUSHALL")
        for key in (OTHER_KEY, ""):  # one that the worker does not know, and one that it knows
            answer = await gateway.chat(key=key)
            assert answer.status == 503, answer.body
        await until(lambda: is_not_ready(gateway), within=LONG)
        await until(lambda: "the store has lost its identity" in gateway.text, within=LONG)
        await unavailable(gateway)
        await stop(gateway)

        await gateway_started_unready(gateway)  # a restart does not make it right
        await stop(gateway)

        gateway.launch("--accept-empty-store")
        await until(lambda: is_ready(gateway), within=LONG)
        gateway.run("accounts", "create", "test", "--balance", "10")
        gateway.api_key = gateway.run("keys", "create", "test").stdout.strip()
        assert (await gateway.chat()).status == 200
        assert (await gateway.chat(key=OTHER_KEY)).status == 401
        await stop(gateway)
        await gateway.started()
        assert (await gateway.chat()).status == 200


async def gateway_started_unready(gateway: Served) -> None:
    gateway.launch()

    async def worker_up() -> bool:
        return (await gateway.metrics()).get("gateway_workers") == 1

    await until(worker_up, within=LONG)
    await until(lambda: is_not_ready(gateway), within=LONG)


@pytest.mark.holds("operations/redis.md#the-stores-identity-1")
async def test_settlements_stay_in_the_journal_while_the_store_is_emptied_and_are_booked_when_it_is_restored(
    yard: Yard,
) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        gateway = await yard.serve(store=f"unix://{server.socket}")
        start = (await gateway.account()).balance
        stream = await gateway.stream("lasting").flowing()
        backup = await server_says(server, "EVAL", DUMP_AND_EMPTY, 0)
        assert not stream.whole
        assert (await stream.ended()).status == 200
        await until(lambda: is_not_ready(gateway), within=LONG)
        await server_says(server, "EVAL", RESTORE, 0, *backup)
        await until(lambda: is_ready(gateway), within=LONG)

        async def settled() -> bool:
            return len(await gateway.charges()) == 1

        await until(settled, within=LONG)
        assert (await gateway.account()).balance < start
        assert not (gateway.data_dir / "journal" / "refused.jsonl").exists()
        await gateway.proved()


@pytest.mark.holds("operations/redis.md#the-stores-identity-1")
async def test_wrong_database_number_is_503_and_not_ready(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        gateway = await yard.serve(store=f"unix://{server.socket}")
        assert (await gateway.chat()).status == 200
        await stop(gateway)
        with_store(gateway, f'url = "unix://{server.socket}?db=1"')
        await gateway_started_unready(gateway)
        await unavailable(gateway)
        await stop(gateway)
        with_store(gateway, f'url = "unix://{server.socket}"')
        await gateway.started()
        assert (await gateway.chat()).status == 200


@pytest.mark.holds(
    "operations/redis.md#the-stores-identity-3",
    "operations/redis.md#the-stores-identity-6",
    "operations/start.md#start-failures-5",
)
async def test_other_pepper_is_503_and_not_ready_and_commands_that_need_none_work(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        gateway = await yard.serve(store=f"unix://{server.socket}")
        assert (await gateway.chat()).status == 200
        await stop(gateway)
        pepper = gateway.data_dir / "pepper"
        right = pepper.read_text()
        pepper.write_text("another pepper of enough bytes")
        await gateway_started_unready(gateway)
        assert (await gateway.chat()).status == 503
        assert "hashed with another pepper" in gateway.text
        created = gateway.run("keys", "create", "test")
        assert created.returncode == 1
        assert "hashed with another pepper" in created.stderr
        await stop(gateway)

        pepper.unlink()
        refused = gateway.run("keys", "create", "test")
        assert refused.returncode == 1
        assert "there is no pepper" in refused.stderr
        (key,) = await gateway.command("keys", "list")
        assert (await gateway.command("accounts", "disable", "test"))["state"] == "disabled"
        assert (await gateway.command("accounts", "enable", "test"))["state"] == "active"
        assert (await gateway.command("keys", "revoke", key["id"]))["state"] == "revoked"
        assert not pepper.exists()
        gateway.launch()
        assert await gateway.ended(within=LONG) == 1  # it makes no second pepper for a store with keys
        assert "there is no pepper" in gateway.text
        assert not pepper.exists()
        pepper.write_text(right)
        pepper.chmod(0o600)
        await gateway.started()


@pytest.mark.holds("operations/redis.md#the-stores-identity-7")
async def test_rotated_pepper_keeps_the_keys_valid_and_ends_with_the_new_one(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        gateway = await yard.serve(store=f"unix://{server.socket}")
        await stop(gateway)
        old = yard.folder / "old-pepper"
        (gateway.data_dir / "pepper").rename(old)
        url = f'url = "unix://{server.socket}"'
        with_store(gateway, f'{url}\nprevious_pepper = "file:{old}"')
        load_pepper(gateway.data_dir)
        await gateway.started()
        assert (await gateway.chat()).status == 200
        newer = gateway.run("keys", "create", "test").stdout.strip()
        assert (await gateway.chat(key=newer)).status == 200
        await stop(gateway)
        with_store(gateway, url)
        await gateway.started()
        for key in ("", newer):
            assert (await gateway.chat(key=key)).status == 200


@pytest.mark.holds("operations/redis.md#secrets-of-the-store-1")
async def test_no_command_line_has_the_url_or_the_password_of_the_store(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        await server_says(server, "CONFIG", "SET", "requirepass", "s3cret-pass")
        gateway = yard.make()
        url = yard.folder / "store-url"
        url.write_text(f"unix://{server.socket}\n")
        gateway.environment["STORE_PASSWORD"] = "s3cret-pass"
        with_store(gateway, f'url = "file:{url}"\npassword = "env:STORE_PASSWORD"')
        await gateway.started()
        gateway.run("accounts", "create", "test", "--balance", "10")
        gateway.api_key = gateway.run("keys", "create", "test").stdout.strip()
        assert (await gateway.chat()).status == 200
        lines = [command_of(pid) for pid in (gateway.pid, *children(gateway.pid))]
        assert len(lines) >= 2
        for line in lines:
            assert "s3cret-pass" not in line
            assert str(server.socket) not in line
        assert "s3cret-pass" not in gateway.text


@pytest.mark.holds("operations/redis.md#a-full-store-1")
async def test_full_store_is_not_ready_and_named_and_keys_can_still_be_revoked(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        gateway = await yard.serve(store=f"unix://{server.socket}")
        key = (await gateway.command("keys", "list"))[0]["id"]
        await server_says(server, "CONFIG", "SET", "maxmemory", "1")
        await until(lambda: is_not_ready(gateway), within=LONG)
        assert (await gateway.chat()).status == 503
        await until(lambda: "the store refuses writes" in gateway.text and "OOM" in gateway.text, within=LONG)
        assert (await gateway.command("accounts", "disable", "test"))["state"] == "disabled"
        assert (await gateway.command("keys", "revoke", key))["state"] == "revoked"
        await server_says(server, "CONFIG", "SET", "maxmemory", "0")
        await until(lambda: is_ready(gateway), within=LONG)
        assert (await gateway.chat()).status in (401, 403)


@pytest.mark.holds("operations/redis.md#the-stores-user-2")
async def test_user_without_info_is_a_clear_error_and_no_crash(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        await server_says(server, "ACL", "SETUSER", "clerk", "on", ">s3cret", "~*", "&*", "+@all", "-info")
        gateway = yard.make(store=f"unix://clerk:s3cret@{server.socket}")
        await gateway_started_unready(gateway)
        assert "may not run a command that the gateway needs" in gateway.text
        assert "NOPERM" in gateway.text
        checked = gateway.run("check")
        assert checked.returncode == 1
        assert "may not run a command that the gateway needs" in checked.stderr
        await server_says(server, "ACL", "SETUSER", "clerk", "+info")
        await until(lambda: is_ready(gateway), within=LONG)


@pytest.mark.holds("operations/redis.md#redis-for-production-8", "operations/start.md#start-failures-4")
async def test_store_that_may_lose_money_is_refused_unless_it_is_declared_unsafe(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        await server_says(server, "CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        await server_says(server, "CONFIG", "SET", "appendonly", "no")
        url = f'url = "unix://{server.socket}"'
        gateway = yard.make(store=f"unix://{server.socket}")
        gateway.launch()
        assert await gateway.ended(within=LONG) == 1
        [said] = [line for line in gateway.text.splitlines() if line.startswith("gateway: ")]
        assert said.startswith("gateway: the store's maxmemory-policy is allkeys-lru")
        assert "store.unsafe = true" in said
        checked = gateway.run("check")
        assert checked.returncode == 1
        assert "appendonly" in checked.stderr
        with_store(gateway, f"{url}\nunsafe = true")
        assert gateway.run("check").returncode == 0
        await gateway.started()


@pytest.mark.holds("operations/redis.md#the-stores-identity-4")
async def test_key_that_was_evicted_is_503_and_not_401(yard: Yard) -> None:
    async with own_store(yard.folder / "elsewhere") as server:
        gateway = await yard.serve(store=f"unix://{server.socket}")
        account = "{a:test}"
        assert (await gateway.chat()).status == 200
        (name,) = await server_says(server, "KEYS", f"{account}:k:*")
        await server_says(server, "DEL", name)
        assert (await gateway.chat()).status == 503
