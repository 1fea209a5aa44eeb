"""Store: one process's way in, over the link and over redis-py's client."""

import asyncio

import pytest
import redis.exceptions

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store import EmbeddedServer, Store, StoreSetupError
from gateway.store.address import RedisAddress
from tests.chaos.proxy import ChaosProxy
from tests.polling import at_once, until


async def test_link_and_client_reach_the_same_database(redis_server):
    store = await Store.open(redis_server)
    try:
        await store.link("{a:acme}").call("SET", "here", 1)
        assert await store.client.get("here") == b"1"
        async with at_once(within=1.0):
            assert 0 < await store.ping() < 60
    finally:
        await store.close()


async def test_a_url_with_database_reaches_both(redis_server):
    store = await Store.open(f"unix://{redis_server}?db=5")
    try:
        await store.link("").call("SET", "five", 1)
        assert await store.client.get("five") == b"1"
        assert b" db=5 " in await store.link("").call("CLIENT", "INFO")
    finally:
        await store.close()


@pytest.mark.slow
async def test_command_that_waits_long_for_replies_waits_longer_for_a_connection_too(redis_server):
    async with ChaosProxy(redis_server) as proxy:
        proxy.delay = 1.0
        url = f"redis://127.0.0.1:{proxy.port}"
        with pytest.raises(StoreUnavailable, match=r"unavailable"):
            await Store.open(url, timeout=0.25)
        store = await Store.open(url, timeout=30.0)
        assert await store.link("").call("PING") == b"PONG"
        await store.close()


async def test_store_without_a_server_is_unavailable_at_once(tmp_path):
    async with at_once(within=1.0):
        with pytest.raises(StoreUnavailable) as caught:
            await Store.open(tmp_path / "nothing.sock")
    assert caught.value.fate is StoreFate.NEVER_SENT


async def test_a_worker_may_open_before_the_store_is_there(tmp_path):
    server = EmbeddedServer(tmp_path)
    store = await Store.open(tmp_path / "store" / "valkey.sock", required=False)
    try:
        with pytest.raises(StoreUnavailable):
            await store.ping()
        await server.start()
        await until(lambda: store.link("").connected)
        assert await store.ping() > 0
    finally:
        await store.close()
        await server.stop()


async def test_invalid_url_is_a_setup_error():
    with pytest.raises(StoreSetupError, match="known are redis://"):
        await Store.open("http://localhost")


@pytest.mark.holds("operations/redis.md#redis-for-production-5", "operations/redis.md#redis-for-production-6")
async def test_a_server_that_could_lose_money_gives_a_warning(redis_server):
    store = await Store.open(redis_server)
    try:
        assert await store.warnings() == []
        await store.client.config_set("maxmemory-policy", "allkeys-lru")
        await store.client.config_set("appendonly", "no")
        policy, log = await store.warnings()
        assert "allkeys-lru" in policy
        assert "append-only" in log
    finally:
        await store.client.config_set("maxmemory-policy", "noeviction")
        await store.client.config_set("appendonly", "yes")
        await store.close()


async def test_the_cold_client_never_repeats_a_command(tmp_path):
    received = 0

    async def count(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal received
        while chunk := await reader.read(4096):
            if b"INCR" in chunk:
                received += 1
                break  # the reply is lost with the connection
            writer.write(b"+OK\r\n" * chunk.count(b"*"))
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_unix_server(count, tmp_path / "s")
    store = Store(RedisAddress(path=str(tmp_path / "s"), protocol=2))
    try:
        with pytest.raises(redis.exceptions.ConnectionError):
            await store.client.incr("n")
        assert received == 1
    finally:
        await store.close()
        server.close()
