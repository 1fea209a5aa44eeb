"""Clients that leave in every way are noticed at once, nothing leaks, and a server drains before it stops."""

from __future__ import annotations

import asyncio
import gc
import socket
import time
import tracemalloc
from typing import Any, cast

import pytest
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler, stream_request_body

from gateway.http_server.connection import Connection
from gateway.http_server.exchange import Exchange
from gateway.http_server.parser import RequestParser
from gateway.http_server.server import HTTPServer
from tests.polling import at_once, turns, until_still

pytestmark = pytest.mark.gen_test

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Waits(RequestHandler):
    """Streams one chunk, then waits to be cancelled by its client's leaving."""

    started: asyncio.Event
    left: asyncio.Event

    async def get(self) -> None:
        self.write("first")
        await self.flush()
        type(self).started.set()
        await type(self).left.wait()
        with pytest.raises(StreamClosedError):
            await self.flush()
        self._auto_finish = False

    def on_connection_close(self) -> None:
        type(self).left.set()


def busy_connections(server: HTTPServer) -> int:
    """The number of open connections that are not idle."""
    return sum(cast(Connection, connection).idle_since is None for connection in server._connections)


def fin(client: Any) -> None:
    client.writer.close()


def half_close(client: Any) -> None:
    client.writer.write_eof()


def rst(client: Any) -> None:
    client.reset()


@pytest.mark.parametrize("leave", [fin, half_close, rst])
@pytest.mark.parametrize("pipelined", [0, 1, 2_000, 4_000])
async def test_a_client_that_disconnects_is_noticed_at_once(serve: Any, leave: Any, pipelined: int) -> None:
    Waits.started, Waits.left = asyncio.Event(), asyncio.Event()
    served = await serve(Waits)
    async with served.client() as client:
        client.send(GET)
        await Waits.started.wait()
        client.send(GET * pipelined)  # 4,000 are more than the server reads: FIN waits behind them
        await turns()
        assert not Waits.left.is_set()
        async with asyncio.timeout(10), at_once():
            leave(client)
            await Waits.left.wait()


async def test_a_half_close_before_the_answer_counts_as_a_disconnect(serve: Any) -> None:
    left = asyncio.Event()

    class Thinks(RequestHandler):
        async def get(self) -> None:
            await left.wait()
            self.write("too late")

        def on_connection_close(self) -> None:
            left.set()

    served = await serve(Thinks)
    async with served.client() as client:
        client.send(GET)
        client.writer.write_eof()
        assert await client.closed() == b""
        assert left.is_set()


async def test_a_client_that_disconnects_inside_its_body_ends_the_handler(serve: Any, eventually: Any) -> None:
    events: list[str] = []

    @stream_request_body
    class Uploads(RequestHandler):
        def data_received(self, chunk: bytes) -> None:
            events.append("body")

        def post(self) -> None:
            events.append("post")

        def on_connection_close(self) -> None:
            super().on_connection_close()
            events.append("closed")

    served = await serve(Uploads)
    tasks = len(asyncio.all_tasks())
    for leave in (fin, rst):
        events.clear()
        async with served.client() as client:
            client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nabc")
            await eventually(lambda: events == ["body"])
            leave(client)
            await eventually(lambda: "closed" in events)
            assert events == ["body", "closed"]
    await eventually(lambda: len(asyncio.all_tasks()) == tasks and served.server.connections == 0)


@pytest.mark.parametrize("leave", [half_close, rst])
async def test_waiting_for_back_pressure_ends_when_the_client_disconnects(
    serve: Any, eventually: Any, leave: Any
) -> None:
    errors: list[StreamClosedError] = []
    written = 0

    class Floods(RequestHandler):
        async def get(self) -> None:
            nonlocal written
            try:
                while True:
                    self.write(b"x" * 65_536)
                    await self.flush()
                    written += 1
            except StreamClosedError as error:
                errors.append(error)

    served = await serve(Floods)
    async with served.client() as client:
        client.writer.transport.pause_reading()
        client.send(GET)
        assert await until_still(lambda: written) > 0
        leave(client)
        await eventually(lambda: errors)


async def test_a_cancelled_waiter_does_not_cancel_another(serve: Any, eventually: Any) -> None:
    results: list[object] = []

    class Two(RequestHandler):
        async def get(self) -> None:
            self.write(b"x" * 9_000_000)
            waiting = asyncio.ensure_future(self.flush())
            other = asyncio.ensure_future(self.request.connection.write(b"y"))
            waiting.cancel()
            await other
            results.append(other.cancelled())

    served = await serve(Two)
    async with served.client() as client:
        assert len((await client.ask(GET)).body) == 9_000_001
        assert results == [False]


@pytest.mark.slow
async def test_nothing_is_left_of_finished_connections(serve: Any, eventually: Any) -> None:
    class Hello(RequestHandler):
        async def get(self) -> None:
            await asyncio.sleep(0)
            self.write("hello")

    served = await serve(Hello)
    tasks = len(asyncio.all_tasks())
    gc.collect()
    gc.disable()  # what only the collector could free would pile up under the gateway's frozen heap
    try:
        for n in range(60):
            async with served.client() as client:
                await client.ask(GET)
                client.send((GET, GET[:9], b"\0", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1")[n % 4])
                if n % 3:
                    client.reset()
        await eventually(lambda: served.server.connections == 0 and len(asyncio.all_tasks()) == tasks)
        kinds = Connection | Exchange | RequestParser

        def left() -> list[object]:
            return [thing for thing in gc.get_objects() if isinstance(thing, kinds)]

        await eventually(lambda: not left())
        assert left() == []
    finally:
        gc.enable()


@pytest.mark.slow
async def test_an_idle_stream_costs_little(serve: Any, eventually: Any) -> None:
    Waits.started, Waits.left = asyncio.Event(), asyncio.Event()
    served = await serve(Waits)
    loop = asyncio.get_running_loop()
    await served.ask(b"GET / HTTP/1.1\r\n\r\n")
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    socks = []
    for _ in range(100):
        sock = socket.socket()
        sock.setblocking(False)
        await loop.sock_connect(sock, served.address)
        await loop.sock_sendall(sock, GET)
        socks.append(sock)
    await eventually(lambda: busy_connections(served.server) == 100)
    await turns()
    gc.collect()
    each = (tracemalloc.get_traced_memory()[0] - before) / 100
    tracemalloc.stop()
    for sock in socks:
        sock.close()
    assert each < 24 * 1024  # RequestHandler, its task and the test's own socket included


async def test_drain_finishes_answers_and_closes_idle_connections(serve: Any, eventually: Any) -> None:
    gate = asyncio.Event()

    class Slow(RequestHandler):
        async def get(self) -> None:
            await gate.wait()
            self.write("done")

    class Both(Slow):
        async def post(self) -> None:
            self.write("ok")

    served = await serve(Both, header_timeout=0.4)
    server: HTTPServer = served.server
    post = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
    async with served.client() as busy, served.client() as idle, served.client() as late:
        assert "Connection" not in (await idle.ask(post)).headers
        await late.ask(post)
        busy.send(GET)
        await eventually(lambda: (server.connections, busy_connections(server)) == (3, 1))
        server.close_listener()
        draining = asyncio.ensure_future(server.drain(5))
        await asyncio.sleep(0)
        answer = await late.ask(post)
        assert (answer.status, answer.headers["Connection"]) == (200, "close")
        assert await idle.closed() == b""
        assert not draining.done()
        gate.set()
        answer = await busy.read()
        assert (answer.body, answer.headers["Connection"]) == (b"done", "close")
        await draining
        assert server.connections == 0
        with pytest.raises(OSError):
            await asyncio.open_connection(*served.address)


async def test_drain_closes_connections_that_exceed_its_timeout(serve: Any) -> None:
    Waits.started, Waits.left = asyncio.Event(), asyncio.Event()
    served = await serve(Waits)
    async with served.client() as client:
        client.send(GET)
        await Waits.started.wait()
        served.server.close_listener()
        await served.server.drain(0.05)
        assert served.server.connections == 0
        assert Waits.left.is_set()


async def test_drain_completes_a_request_whose_head_is_half_read(serve: Any, eventually: Any) -> None:
    class Hello(RequestHandler):
        def get(self) -> None:
            self.write("hello")

    served = await serve(Hello)
    async with served.client() as idle, served.client() as begun:
        await idle.ask(GET)
        begun.send(GET[:12])
        await eventually(lambda: busy_connections(served.server) == 1)
        draining = asyncio.ensure_future(served.server.drain(5))
        assert await idle.closed() == b""
        assert (await begun.ask(GET[12:])).body == b"hello"
        await draining


async def test_connections_in_the_queue_are_served_after_the_listener_closed(serve: Any) -> None:
    class Hello(RequestHandler):
        def get(self) -> None:
            self.write("hello")

    served = await serve(Hello)
    queued = []
    for _ in range(20):  # in one tick of the loop: nothing is accepted meanwhile
        sock = socket.create_connection(served.address)
        sock.sendall(GET)
        queued.append(sock)
    served.server.close_listener()
    await served.server.drain(2)
    for sock in queued:
        assert sock.recv(1_000).endswith(b"hello")
        sock.close()


async def test_queued_connections_are_accepted_in_few_turns_of_a_busy_loop(serve: Any) -> None:
    served = await serve(Waits)
    clients = [socket.create_connection(served.address) for _ in range(40)]  # the kernel queues them
    try:
        count = 0
        while served.server.connections < len(clients):
            busy_until = time.monotonic() + 0.003  # longer than the pause between two groups
            while time.monotonic() < busy_until:
                pass
            await turns(1)
            count += 1
        assert count < len(clients) / 2
    finally:
        for client in clients:
            client.close()


async def test_more_queued_connections_are_accepted_after_a_long_turn_of_the_loop(serve: Any) -> None:
    """Otherwise those of a crowd that are accepted keep the others in the queue."""
    served = await serve(Waits)
    clients = [socket.create_connection(served.address) for _ in range(200)]
    try:
        while not served.server.connections:
            await asyncio.sleep(0)
        busy_until = time.monotonic() + 0.05
        while time.monotonic() < busy_until:
            pass
        await turns(4)
        assert served.server.connections == len(clients)
    finally:
        for client in clients:
            client.close()


async def test_all_late_connections_are_closed_if_one_turn_sweeps_few(
    serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.http_server.server.SWEEP_SLICE", 0.0)
    served = await serve(Waits, header_timeout=0.1)
    clients = [socket.create_connection(served.address) for _ in range(10)]
    try:
        await eventually(lambda: served.server.connections == len(clients))
        await eventually(lambda: not served.server.connections)
        assert [client.recv(1) for client in clients] == [b""] * len(clients)
    finally:
        for client in clients:
            client.close()
