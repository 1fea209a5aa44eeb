"""Pieces that wait for the end of the loop's turn: in order, few, counted when they go, each connection by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPServerConnectionDelegate,
    ResponseStartLine,
)
from tornado.iostream import StreamClosedError

from gateway.http_server.server import HTTPServer
from gateway.http_server.write_batch import AT_ONCE, MOST, WriteBatch

pytestmark = [pytest.mark.gen_test, pytest.mark.usefixtures("io_loop")]

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


def nothing() -> None:
    """Nobody counts."""


class Recorder(asyncio.Transport):
    """A transport that writes into a list it shares with others."""

    def __init__(self, name: str, log: list[str], *, broken: bool = False) -> None:
        super().__init__()
        self.name, self.log, self.broken, self.gone = name, log, broken, False

    def is_closing(self) -> bool:
        return self.gone

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.broken:
            raise RuntimeError("broken")
        self.log.append(f"{self.name}{bytes(data).decode()}")

    def abort(self) -> None:
        self.gone = True
        self.log.append(f"{self.name} dropped")


async def test_pieces_go_out_in_order_once_the_turn_is_over() -> None:
    log: list[str] = []
    loop = asyncio.get_running_loop()
    write_batch = WriteBatch(loop.call_soon)
    one, two = Recorder("1", log), Recorder("2", log)
    for transport, data in [(one, b"a"), (two, b"b"), (one, b"c")]:
        write_batch.put(transport, data, nothing)
    loop.call_soon(log.append, "whoever was woken in this turn")
    assert log == []
    await asyncio.sleep(0)
    assert log == ["1a", "2b", "1c", "whoever was woken in this turn"]
    write_batch.put(two, b"d", nothing)
    await asyncio.sleep(0)
    assert log[-1] == "2d"


async def test_piece_is_noted_right_before_it_goes_out_and_also_if_its_connection_is_gone() -> None:
    log: list[str] = []
    write_batch = WriteBatch(asyncio.get_running_loop().call_soon)
    one, two = Recorder("1", log), Recorder("2", log)
    write_batch.put(one, b"a", lambda: log.append("note a"))
    write_batch.put(two, b"b", lambda: log.append("note b"))
    write_batch.put(two, b"c", lambda: log.append("note c"))
    one.gone = True
    write_batch.empty()
    assert log == ["note a", "note b", "2b", "note c", "2c"]  # whoever counts in any case is told in any case


async def test_few_pieces_wait_however_many_come_in_a_turn() -> None:
    log: list[str] = []
    write_batch = WriteBatch(asyncio.get_running_loop().call_soon)
    transport = Recorder("", log)
    for number in range(10 * MOST + 1):
        write_batch.put(transport, str(number).encode(), nothing)
        assert number - len(log) < MOST
    await asyncio.sleep(0)
    assert log == [str(number) for number in range(10 * MOST + 1)]


async def test_connection_that_cannot_be_written_to_is_dropped_and_the_others_get_their_pieces() -> None:
    log: list[str] = []
    write_batch = WriteBatch(asyncio.get_running_loop().call_soon)
    write_batch.put(Recorder("1", log, broken=True), b"a", nothing)
    write_batch.put(Recorder("2", log), b"b", nothing)
    write_batch.empty()
    assert log == ["1 dropped", "2b"]


class Writes(HTTPMessageDelegate, HTTPServerConnectionDelegate):
    """Answers with a begun chunked body, and lets a test write the rest at one go."""

    def __init__(self, rest: Callable[[Any], object]) -> None:
        self.rest = rest
        self.connection: Any = None

    def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
        self.connection = request_conn
        return self

    def finish(self) -> None:
        self.connection.write_headers(ResponseStartLine("", 200, "OK"), HTTPHeaders(), b"first")
        self.rest(self.connection)


async def test_large_piece_does_not_wait_and_overtakes_nothing(serve: Any) -> None:
    large = b"x" * (AT_ONCE + 1)
    on_written: list[str] = []

    def rest(connection: Any) -> None:
        connection.write_soon(b"small", lambda: on_written.append("small"))
        connection.write_soon(large, lambda: on_written.append("large"))
        connection.write_soon(b"again", lambda: on_written.append("again"))
        assert on_written == ["small", "large"]
        connection.finish()
        assert on_written == ["small", "large", "again"]

    served = await serve(Writes(rest))
    async with served.client() as client:
        for _ in range(2):  # and the connection lives on
            on_written.clear()
            client.send(GET)
            await client.read_headers()
            assert [chunk async for chunk in client.chunks()] == [b"first", b"small", large, b"again"]


async def test_what_is_not_put_off_is_written_at_once_behind_what_is(serve: Any) -> None:
    waiting: list[int] = []

    def rest(connection: Any) -> None:
        connection.write_soon(b"soon", nothing)
        waiting.append(len(served.server.state.write_batch._pieces))
        connection.write(b"now")
        waiting.append(len(served.server.state.write_batch._pieces))
        connection.finish()

    served = await serve(Writes(rest))
    answer = await served.ask(GET)
    assert answer.body == b"firstsoonnow"
    assert waiting == [1, 0]


@pytest.mark.parametrize("asked", [GET, GET * 2], ids=["closed", "lingering"])
async def test_what_waits_is_sent_before_the_connection_is_cut(serve: Any, asked: bytes) -> None:
    def cut(connection: Any) -> None:
        connection.write_soon(b"second", nothing)
        connection.abort()

    def rest(connection: Any) -> None:  # once all was read that was asked
        asyncio.get_running_loop().call_soon(cut, connection)

    served = await serve(Writes(rest))
    async with served.client() as client:
        client.send(asked)
        await client.read_headers()
        assert await client.closed() == b"5\r\nfirst\r\n6\r\nsecond\r\n"


async def test_pieces_of_one_turn_hold_their_writer_back_once_the_client_is_slow(serve: Any, eventually: Any) -> None:
    waits: list[int] = []

    def rest(connection: Any) -> None:
        piece, sent = b"x" * AT_ONCE, 0
        while connection.write_soon(piece, nothing).done():
            sent += len(piece)
        waits.append(sent)

    served = await serve(Writes(rest))
    async with served.client() as client:
        client.writer.transport.pause_reading()
        client.send(GET)
        await eventually(lambda: waits, within=10.0)
    assert waits[0] < 32 * 1024 * 1024  # what two kernels' buffers take, and no more


async def test_piece_that_waits_is_not_taken_for_one_that_a_stalled_client_has_read(
    serve: Any, eventually: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rest(connection: Any) -> None:
        while connection.write_soon(b"x" * AT_ONCE, nothing).done():
            pass

    delegate = Writes(rest)
    sweep, sweeps = HTTPServer._sweep, 0

    def sweeping(server: HTTPServer) -> None:
        nonlocal sweeps
        sweeps += 1
        if delegate.connection is not None and sweeps % 2:
            delegate.connection.write_soon(b"and on", nothing)  # right before every other look
        sweep(server)

    monkeypatch.setattr(HTTPServer, "_sweep", sweeping)
    served = await serve(delegate, write_timeout=0.2)
    async with served.client() as client:
        client.writer.transport.pause_reading()
        client.send(GET)
        await eventually(lambda: served.server.connections)
        await eventually(lambda: not served.server.connections)


async def test_piece_for_a_client_that_leaves_in_the_same_turn_is_still_sent(serve: Any, eventually: Any) -> None:
    """It is charged for, and before pieces waited it would have been on its way."""
    on_written: list[str] = []

    def rest(connection: Any) -> None:
        connection.set_close_callback(lambda: on_written.append("left"))

    delegate = Writes(rest)
    served = await serve(delegate)
    async with served.client() as client:
        client.send(GET)
        await client.read_headers()
        assert await client.reader.readexactly(len(b"5\r\nfirst\r\n")) == b"5\r\nfirst\r\n"
        (connection,) = served.server._connections
        delegate.connection.write_soon(b"late", lambda: on_written.append("noted"))
        connection.eof_received()  # as if the client's FIN had been read in this turn
        assert on_written == ["noted", "left"]
        assert await client.reader.readexactly(len(b"4\r\nlate\r\n")) == b"4\r\nlate\r\n"
    await eventually(lambda: not served.server.connections)


async def test_piece_for_a_client_that_left_before_is_noted_at_once(serve: Any, eventually: Any) -> None:
    """An answer that is read on without its client is charged for, and must be if the worker is killed meanwhile."""
    on_written: list[str] = []
    delegate = Writes(lambda connection: None)
    served = await serve(delegate)
    async with served.client() as client:
        client.send(GET)
        await client.read_headers()
    await eventually(lambda: not served.server.connections)
    future = delegate.connection.write_soon(b"late", lambda: on_written.append("noted"))
    assert on_written == ["noted"]
    assert isinstance(future.exception(), StreamClosedError)
