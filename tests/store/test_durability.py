"""What a command says it did outlives the store: asked for after every writing command, and seen with a slow disk."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gateway.accounts.pepper import load_pepper
from gateway.store import EmbeddedServer, Store
from tests.cli.conftest import Terminal, on_store, terminal  # noqa: F401  # a fixture
from tests.polling import until
from tests.slow_disk import slow_disk


async def asked(store: Store) -> int:
    """How often the server was told to wait for its disk."""
    stats = await store.client.info("commandstats")
    return stats.get("cmdstat_waitaof", {"calls": 0})["calls"]


@pytest.mark.holds(
    "operations/redis.md#durability-of-commands-1",
    "operations/redis.md#durability-of-commands-2",
    "operations/redis.md#durability-of-commands-3",
)
async def test_write_is_on_the_disk_before_the_command_returns(redis_server):
    store = await Store.open(redis_server)
    try:
        before = await asked(store)
        await store.link("").call("SET", "here", 1)
        assert await store.unconfirmed() == []
        assert await asked(store) == before + 1
    finally:
        await store.close()


@pytest.mark.holds("operations/redis.md#durability-of-commands-6")
async def test_server_without_an_append_only_file_is_trusted(redis_server):
    store = await Store.open(redis_server)
    try:
        await store.client.config_set("appendonly", "no")
        await store.link("").call("SET", "here", 1)
        assert await store.unconfirmed() == []
    finally:
        await store.client.config_set("appendonly", "yes")
        await store.close()


@pytest.mark.holds("operations/redis.md#durability-of-commands-4")
async def test_durability_is_in_doubt_if_the_server_died_after_the_write_even_if_it_is_back(tmp_path):
    server = EmbeddedServer(tmp_path)
    await server.start()
    store = await Store.open(server.socket, timeout=5.0)
    try:
        await store.link("").call("SET", "here", 1)
        assert server.pid
        os.kill(server.pid, signal.SIGKILL)
        await until(lambda: not store.whole())
        await server.stop()
        await server.start()
        await until(store.whole)
        assert await store.unconfirmed() == [f"the connection to unix://{server.socket} was lost right afterwards"]
    finally:
        await store.close()
        await server.stop()


@pytest.mark.holds("operations/redis.md#durability-of-commands-2")
async def test_file_of_the_embedded_server_is_synced_whatever_the_server_reports(tmp_path, monkeypatch):
    server = EmbeddedServer(tmp_path)
    await server.start()
    synced: list[str] = []
    sync = os.fsync
    try:

        def recorded(fd: int) -> None:
            synced.append(str(Path(f"/proc/self/fd/{fd}").readlink()))
            sync(fd)

        monkeypatch.setattr(os, "fsync", recorded)
        server.home.sync()
        assert synced == [str(path) for path in tmp_path.rglob("*.incr.aof")]
    finally:
        await server.stop()


WRITING = [
    "accounts credit acme 5",
    "accounts credit acme 5 --id invoice-1",
    "accounts disable acme",
    "accounts enable acme",
    "accounts allow acme fake-chat",
    "accounts deny acme fake-chat",
    "accounts create umbra",
    "keys create acme",
    "keys revoke KEY",
]
READING = ["accounts list", "accounts show acme", "keys list", "audit", "usage acme"]


def test_only_commands_that_write_wait_for_the_disk(terminal: Terminal, valkey: Path) -> None:  # noqa: F811
    terminal.ok("accounts", "create", "acme")
    key = terminal.json("keys", "create", "acme")["id"]
    for command in WRITING + READING:
        before = on_store(valkey, asked)
        result = terminal.run(*command.replace("KEY", key).split())
        assert (result.exit_code, "done, but" in result.stderr) == (0, False), result.output
        assert on_store(valkey, asked) - before == (command in WRITING), command


@pytest.mark.holds("operations/redis.md#durability-of-commands-7", "operations/redis.md#redis-for-production-12")
def test_doubtful_durability_is_a_warning_not_a_failure(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    terminal.ok("accounts", "create", "acme")

    async def unconfirmed(_: Any) -> list[str]:
        return ["the disk is slow"]

    monkeypatch.setattr(Store, "unconfirmed", unconfirmed)
    result = terminal.run("keys", "create", "acme")
    assert result.exit_code == 0
    assert result.stdout.startswith("sk-")
    assert "gateway: done, but the disk is slow; look whether it holds\n" in result.stderr


# A slow disk ---------------------------------------------------------------------------------------------------------

CONFIG = '[store]\ndata_dir = "{folder}"\n'


@pytest.mark.holds("operations/redis.md#durability-of-commands-2")
@pytest.mark.slow
async def test_revoked_key_stays_revoked_though_the_store_is_killed_on_a_slow_disk(tmp_path, monkeypatch):
    config = tmp_path / "gateway.toml"
    config.write_text(CONFIG.format(folder=tmp_path / "var"))
    load_pepper(tmp_path / "var")  # as `gateway serve` did at its first start

    async def gateway(*words: str) -> asyncio.subprocess.Process:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "gateway", *words, "--config", config,
            stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip

    server = EmbeddedServer(tmp_path / "var")
    with monkeypatch.context() as patch:
        slow = slow_disk(tmp_path, patch)
        await server.start()
    store = await Store.open(server.socket, timeout=5.0)
    try:
        for words in (("accounts", "create", "acme"), ("keys", "create", "acme")):
            assert await (await gateway(*words)).wait() == 0
        (key_id,) = [name.decode() for name in await store.client.smembers("{a:acme}:ks")]
        slow.touch()

        async def state() -> bytes:
            found: Any = await store.client.hget(f"{{a:acme}}:k:{key_id}", "state")
            assert isinstance(found, bytes)
            return found

        async def syncing() -> bool:
            await store.client.incr("anything")
            return (await store.client.info("persistence"))["aof_pending_bio_fsync"] > 0

        async def someone_waits() -> bool:
            return (await store.client.info("clients"))["blocked_clients"] > 0

        await until(syncing)
        # The server now keeps what it is told in memory, and answers all the same.
        revoking = await gateway("keys", "revoke", key_id)
        await until(lambda: store_says(state, b"revoked"))
        await until(someone_waits)
        assert revoking.returncode is None
        slow.unlink()
        out, err = await revoking.communicate()
        assert server.pid
        os.kill(server.pid, signal.SIGKILL)
        assert (revoking.returncode, err) == (0, b"")
        assert b"revoked" in out
        await server.stop()
        await server.start()
        await until(store.whole)
        assert await state() == b"revoked"
    finally:
        await store.close()
        await server.stop()


async def store_says(ask: Callable[[], Any], wanted: bytes) -> bool:
    return await ask() == wanted
