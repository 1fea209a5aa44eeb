"""Repeatable commands whose reply is late or lost are sent again; a slow server delays and does not refuse."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store import EmbeddedServer
from gateway.store import connection as connections
from gateway.store.address import RedisAddress
from gateway.store.link import RedisLink
from tests.chaos.proxy import ChaosProxy
from tests.delays import store_is_paused_for
from tests.leftovers import garbage
from tests.polling import at_once, until

pytestmark = pytest.mark.slow

TIMEOUT = 2.0  # seconds; long, so that a slow test machine does not reach it


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedServer]:
    server = EmbeddedServer(tmp_path_factory.mktemp("resend"))
    server.start_blocking()
    yield server
    server.stop_blocking()


@asynccontextmanager
async def proxied(server: EmbeddedServer, **options: object) -> AsyncIterator[tuple[ChaosProxy, RedisLink]]:
    async with ChaosProxy(server.socket) as proxy:
        link = RedisLink(RedisAddress(port=proxy.port), timeout=TIMEOUT, **options)  # type: ignore[arg-type]
        try:
            await link.connect()
            yield proxy, link
        finally:
            await link.close()


@asynccontextmanager
async def paused(server: EmbeddedServer) -> AsyncIterator[None]:
    assert server.pid is not None
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


async def count(link: RedisLink, name: str) -> int:
    return int(await link.call("GET", name) or 0)


async def test_repeatable_command_whose_reply_is_lost_is_answered_on_a_second_connection(server):
    async with proxied(server) as (proxy, link):
        await link.call("DEL", "n")
        proxy.deafen = 1.0
        call = link.call_repeatable("INCR", "n")
        await until(lambda: proxy.deafened)
        proxy.deafen = 0.0
        assert await call == 2  # both copies were executed
        assert proxy.connections == 2
        assert link.connected
        assert await count(link, "n") == 2


async def test_command_that_is_not_repeatable_is_sent_once_beside_one_that_is(server):
    async with proxied(server) as (proxy, link):
        await link.call("DEL", "n")
        proxy.deafen = 1.0
        once, again = link.call("INCR", "n"), link.call_repeatable("ECHO", "here")
        await until(lambda: proxy.deafened)
        proxy.deafen = 0.0
        assert await again == b"here"
        with pytest.raises(StoreUnavailable) as caught:
            await once
        assert caught.value.fate is StoreFate.UNKNOWN
        assert await count(link, "n") == 1


async def test_calls_after_a_lost_reply_use_the_new_connection_and_the_old_one_is_closed(server):
    async with proxied(server) as (proxy, link):
        before = link._connection
        proxy.deafen = 1.0
        call = link.call_repeatable("ECHO", "first")
        await until(lambda: proxy.deafened)
        proxy.deafen = 0.0
        assert await call == b"first"
        assert link._connection is not before
        assert await link.call("ECHO", "second") == b"second"
        await until(before.lost.done)
        assert not link._retired
        assert link.connected


async def test_second_connection_that_loses_replies_too_is_replaced_as_well(server):
    async with proxied(server) as (proxy, link):
        proxy.deafen = 1.0
        call = link.call_repeatable("ECHO", "here")
        await until(lambda: proxy.deafened >= 2)  # the second one at its greeting
        proxy.deafen = 0.0
        assert await call == b"here"
        assert proxy.connections >= 3


async def test_command_whose_second_connection_is_lost_is_sent_on_a_third_one_while_the_first_is_silent(server):
    async with proxied(server) as (proxy, link):
        proxy.deafen = 1.0
        call = link.call_repeatable("ECHO", "here")
        await until(lambda: proxy.deafened)
        proxy.deafen, proxy.delay = 0.0, 0.2
        await until(lambda: link._retired)
        link.disconnect("pulled")
        proxy.delay = 0.0
        assert await call == b"here"
        assert proxy.connections == 3


@pytest.mark.holds("operations/redis.md#a-slow-store-2")
async def test_repeatable_command_of_a_lost_connection_waits_for_the_next_one(server):
    async with proxied(server) as (proxy, link):
        proxy.lose_replies = True
        call = link.call_repeatable("ECHO", "here")
        await until(lambda: link.in_flight)
        proxy.drop()
        proxy.lose_replies = False
        assert await call == b"here"


async def test_repeatable_command_fails_with_unknown_fate_at_its_timeout(server):
    async with proxied(server) as (proxy, link):
        proxy.lose_replies = True
        started = time.monotonic()
        async with at_once(within=TIMEOUT * 2):
            with pytest.raises(StoreUnavailable) as caught:
                await link.call_repeatable("ECHO", "here")
        assert caught.value.fate is StoreFate.UNKNOWN
        assert time.monotonic() - started > TIMEOUT * 0.9


async def test_paused_server_delays_calls_and_fails_none_of_them(server):
    async with proxied(server) as (_, link):
        for _ in range(3):
            async with paused(server):
                calls = [call("ECHO", n) for n in range(50) for call in (link.call, link.call_repeatable)]
                await store_is_paused_for(TIMEOUT / 3)  # longer than it takes to look for another connection
                assert not any(call.done() for call in calls)
            replies = await asyncio.gather(*calls)
            assert [int(reply) for reply in replies] == [n for n in range(50) for _ in range(2)]
        assert link.connected


@pytest.mark.holds("operations/redis.md#a-slow-store-3")
async def test_calls_fail_at_once_after_a_server_was_silent_for_the_timeout(server):
    async with proxied(server) as (_, link):
        async with paused(server):
            with pytest.raises(StoreUnavailable):
                await link.call_repeatable("PING")
            await until(lambda: not link.connected)
            with pytest.raises(StoreUnavailable):
                await link.call_repeatable("PING")  # waits for a new connection for a moment
            calls = [link.call_repeatable("PING"), link.call("PING")]
            assert all(call.done() for call in calls)
            assert {type(call.exception()) for call in calls} == {StoreUnavailable}

        async def answers() -> bool:
            try:
                return bool(await link.call("PING") == b"PONG")
            except StoreUnavailable:
                return False

        await until(answers)


@pytest.mark.holds("operations/redis.md#a-slow-store-4")
async def test_large_commands_that_wait_for_a_late_server_are_limited_by_their_bytes(server, monkeypatch):
    monkeypatch.setattr(connections, "MAX_WAITING_BYTES", 100_000)
    async with proxied(server) as (_, link):
        async with paused(server):
            waiting = [link.call("ECHO", "x" * 10_000) for _ in range(20)]
            connection = link._connection
            assert connection is not None
            await until(lambda: connection.most < 20)
            refused = link.call("ECHO", "x" * 10_000)
            assert refused.done()
            with pytest.raises(StoreUnavailable) as caught:
                await refused
            assert caught.value.fate is StoreFate.NEVER_SENT
        assert len(await asyncio.gather(*waiting)) == 20
        await until(lambda: connection.most == link.max_in_flight)


async def test_lost_replies_leave_nothing_to_the_garbage_collector(server, no_collector):
    async with proxied(server) as (proxy, link):
        proxy.lose_replies = True
        with pytest.raises(StoreUnavailable):
            await link.call_repeatable("PING")
    assert not garbage()
