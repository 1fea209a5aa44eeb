"""At the limit of connections the one that is idle the longest makes room; without an idle one a client is refused."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tornado.web import RequestHandler

from tests.delays import time_passes

pytestmark = [pytest.mark.gen_test, pytest.mark.slow]

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
MOST = 5
ANSWERED_AT_ONCE = 32  # refused connections that may be open beyond the limit


class Hello(RequestHandler):
    """Says hello."""

    def get(self) -> None:
        self.write("hello")


class Waits(RequestHandler):
    """Answers when the test says so."""

    go_on: asyncio.Event

    async def get(self) -> None:
        await type(self).go_on.wait()
        self.write("hello")

    def on_connection_close(self) -> None:
        pass


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
    reports: list[tuple[int, int]] = []
    served = await serve(Hello, max_connections=MOST, on_full=lambda *counts: reports.append(counts))
    async with AsyncExitStack() as stack:
        for _ in range(MOST + 3):
            await stack.enter_async_context(served.client())
        await eventually(lambda: sum(closed for closed, _ in reports) == 3)
        assert sum(refused for _, refused in reports) == 0
