"""At the limit the connection that waits the longest, of the address with the most, makes room for a new one."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tornado.web import RequestHandler

from gateway.http_server import server as server_module
from gateway.http_server.client_address import networks
from gateway.http_server.connection_limit import Dropped
from gateway.http_server.server import ACCEPTED_AT_ONCE, HTTPServer
from tests.delays import time_passes

pytestmark = [pytest.mark.gen_test, pytest.mark.slow]

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"
UNFINISHED = b"GET / HTTP/1.1\r\nHost: x\r\nA"
MOST = 5
ANSWERED_AT_ONCE = 32  # refused connections that may be open beyond the limit


class Hello(RequestHandler):
    """Says hello."""

    def get(self) -> None:
        self.write("hello")

    post = get


class Waits(RequestHandler):
    """Answers when the test says so."""

    go_on: asyncio.Event

    async def get(self) -> None:
        await type(self).go_on.wait()
        self.write("hello")

    def on_connection_close(self) -> None:
        pass


def waiting(served: Any) -> int:
    """The connections that wait for their clients."""
    return sum(one.waiting_since is not None for one in served.server._connections)


@pytest.mark.holds("operations/network.md#connections-2")
async def test_longest_idle_connection_is_closed_for_a_new_one(serve: Any, eventually: Any) -> None:
    served = await serve(Hello, max_connections=MOST)
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client()) for _ in range(MOST)]
        for client in (*clients[1:], clients[0]):  # the second one is idle the longest
            assert (await client.ask(GET)).status == 200
            await time_passes(2 * served.server.state.tick)  # its clock is coarse
        assert (await served.ask(GET)).status == 200
        assert await clients[1].closed() == b""
        for client in (clients[0], *clients[2:]):
            assert (await client.ask(GET)).status == 200


async def test_connection_without_any_request_is_closed_first_if_it_is_the_oldest(serve: Any) -> None:
    served = await serve(Hello, max_connections=MOST)
    async with AsyncExitStack() as stack:
        silent = await stack.enter_async_context(served.client())
        await time_passes(2 * served.server.state.tick)
        others = [await stack.enter_async_context(served.client()) for _ in range(MOST)]
        assert await silent.closed() == b""
        for client in others:
            assert (await client.ask(GET)).status == 200


@pytest.mark.holds("operations/network.md#connections-2")
async def test_new_client_gets_503_while_every_connection_has_a_request(serve: Any, eventually: Any) -> None:
    Waits.go_on = asyncio.Event()
    served = await serve(Waits, max_connections=MOST)
    async with AsyncExitStack() as stack:
        busy = [await stack.enter_async_context(served.client()) for _ in range(MOST)]
        for client in busy:
            client.send(GET)
        await eventually(lambda: all(one.idle_since is None for one in served.server._connections))
        answer = await served.ask(GET)
        assert (answer.status, answer.error["code"]) == (503, "server_is_overloaded")
        assert (answer.headers["Connection"], answer.headers["Retry-After"]) == ("close", "1")
        Waits.go_on.set()
        for client in busy:
            assert (await client.read()).status == 200
        assert (await served.ask(GET)).status == 200


async def test_connections_stay_near_the_limit_in_a_flood(serve: Any, eventually: Any) -> None:
    Waits.go_on = asyncio.Event()
    served = await serve(Waits, max_connections=MOST)
    async with AsyncExitStack() as stack:
        for _ in range(MOST):
            (await stack.enter_async_context(served.client())).send(GET)
        await eventually(lambda: len(served.server._connections) == MOST)
        await eventually(lambda: all(one.idle_since is None for one in served.server._connections))
        for _ in range(4 * ANSWERED_AT_ONCE):
            await stack.enter_async_context(served.client())
            assert served.server.connections <= MOST + ANSWERED_AT_ONCE + 1
        Waits.go_on.set()


async def test_what_was_closed_and_refused_is_reported_once_per_tick(serve: Any, eventually: Any) -> None:
    reports: list[Dropped] = []
    served = await serve(Hello, max_connections=MOST, on_full=reports.append)
    async with AsyncExitStack() as stack:
        for _ in range(MOST + 3):
            await stack.enter_async_context(served.client())
        await eventually(lambda: sum(dropped.idle for dropped in reports) == 3)
        assert sum(dropped.refused + dropped.unfinished for dropped in reports) == 0
        assert (reports[-1].address, reports[-1].connections) == ("127.0.0.1", MOST)


@pytest.mark.holds("operations/network.md#connections-2", "security.md#shares-4")
async def test_crowd_of_unfinished_heads_makes_room_for_another_address(serve: Any, eventually: Any) -> None:
    reports: list[Dropped] = []
    served = await serve(Hello, max_connections=MOST, on_full=reports.append)
    async with AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(served.client("127.0.0.2")) for _ in range(3 * MOST)]
        for client in crowd:
            client.send(UNFINISHED)
        for _ in range(MOST - 1):
            client = await stack.enter_async_context(served.client())
            assert (await client.ask(GET)).status == 200
        await eventually(lambda: served.server.connections <= MOST)  # a displaced one closes in the loop's next turns
        await eventually(lambda: sum(dropped.unfinished + dropped.idle for dropped in reports) == 3 * MOST - 1)


async def test_address_with_few_connections_keeps_them_beside_a_crowd(serve: Any) -> None:
    served = await serve(Hello, max_connections=MOST)
    async with served.client() as client, AsyncExitStack() as stack:
        assert (await client.ask(GET)).status == 200
        for _ in range(3 * MOST):
            crowd = await stack.enter_async_context(served.client("127.0.0.2"))
            crowd.send(UNFINISHED)
        assert (await client.ask(GET)).status == 200


@pytest.mark.holds("operations/network.md#connections-3", "security.md#shares-4")
async def test_single_address_leaves_an_eighth_of_the_places_to_others(serve: Any, eventually: Any) -> None:
    Waits.go_on = asyncio.Event()
    served = await serve(Waits, max_connections=16)
    async with AsyncExitStack() as stack:
        busy = [await stack.enter_async_context(served.client("127.0.0.2")) for _ in range(14)]
        for client in busy:
            client.send(GET)
        await eventually(lambda: sum(one.idle_since is None for one in served.server._connections) == 14)
        async with served.client("127.0.0.2") as beyond:
            assert (await beyond.ask(GET)).status == 503
        other = await stack.enter_async_context(served.client())
        other.send(GET)
        await eventually(lambda: served.server.connections - waiting(served) == 15)
        Waits.go_on.set()
        assert (await other.read()).status == 200
        for client in busy:
            assert (await client.read()).status == 200


@pytest.mark.holds("operations/network.md#connections-3")
async def test_trusted_proxy_may_have_all_places(serve: Any) -> None:
    served = await serve(Hello, max_connections=16, trusted=lambda: networks(("127.0.0.2",)))
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(served.client("127.0.0.2")) for _ in range(16)]
        for client in clients:
            assert (await client.ask(GET)).status == 200


@pytest.mark.holds("operations/network.md#connections-2")
async def test_body_that_drips_makes_room_and_one_that_flows_does_not(serve: Any, eventually: Any) -> None:
    served = await serve(Hello, max_connections=2, min_body_rate=1000)
    async with AsyncExitStack() as stack:
        drips = await stack.enter_async_context(served.client("127.0.0.2"))
        drips.send(POST + b"a")
        flows = await stack.enter_async_context(served.client("127.0.0.2"))
        flows.send(POST + b"a" * 90_000)
        await eventually(lambda: waiting(served) == 0)
        await eventually(lambda: waiting(served) == 1)
        assert (await served.ask(GET)).status == 200
        assert await drips.closed() == b""
        flows.send(b"a" * 10_000)
        assert (await flows.read()).status == 200


@pytest.mark.holds("operations/network.md#connections-3")
async def test_dripping_bodies_behind_a_trusted_proxy_count_for_the_forwarded_address(
    serve: Any, eventually: Any
) -> None:
    trusted = networks(("127.0.0.2",))
    served = await serve(Hello, max_connections=6, min_body_rate=1000, trusted=lambda: trusted)
    async with AsyncExitStack() as stack:
        crowd = [await stack.enter_async_context(served.client("127.0.0.2")) for _ in range(4)]
        for client in crowd:
            client.send(POST.replace(b"\r\n\r\n", b"\r\nX-Forwarded-For: 198.51.100.1\r\n\r\n") + b"a")
        await eventually(lambda: waiting(served) == 0)
        honest = [await stack.enter_async_context(served.client("127.0.0.2")) for _ in range(2)]
        for client in honest:
            assert (await client.ask(GET)).status == 200
        await eventually(lambda: waiting(served) == 6)
        await eventually(lambda: sum(one._counts_for_forwarded for one in served.server._connections) == 4)
        for _ in range(2):
            honest.append(await stack.enter_async_context(served.client("127.0.0.2")))
            assert (await honest[-1].ask(GET)).status == 200
        for client in honest:
            assert (await client.ask(GET)).status == 200
        await eventually(lambda: sum(client.reader.at_eof() for client in crowd) == 2)


@pytest.mark.holds("operations/network.md#connections-2")
async def test_many_new_connections_of_a_crowd_are_closed_before_anything_is_made(
    serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = 0
    before = HTTPServer.opened

    def opened(server: HTTPServer, connection: Any) -> None:
        nonlocal made
        made += 1
        before(server, connection)

    monkeypatch.setattr(HTTPServer, "opened", opened)
    monkeypatch.setattr(server_module, "MOST_ACCEPTED", ACCEPTED_AT_ONCE)  # also after a long turn of the loop
    reports: list[Dropped] = []
    served = await serve(Hello, max_connections=32, header_timeout=60.0, on_full=reports.append)
    async with AsyncExitStack() as stack:
        crowd = await asyncio.gather(*(stack.enter_async_context(served.client("127.0.0.2")) for _ in range(400)))
        for client in crowd:
            client.send(UNFINISHED)
        await eventually(lambda: sum(dropped.refused for dropped in reports) > 100)
        assert made < 300
        assert served.server.connections <= 32 + ANSWERED_AT_ONCE
        assert (await served.ask(GET)).status == 200
