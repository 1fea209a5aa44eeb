"""Answers: framing that never lies about completeness, back-pressure, and handlers that fail or go stale."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from tornado.httputil import (
    HTTPConnection,
    HTTPHeaders,
    HTTPMessageDelegate,
    HTTPOutputError,
    HTTPServerConnectionDelegate,
    ResponseStartLine,
)
from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from tests.polling import until_still

pytestmark = pytest.mark.gen_test

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_flushed_chunks_arrive_one_by_one_with_a_valid_end(serve: Any) -> None:
    gate = asyncio.Event()

    class Streams(RequestHandler):
        async def get(self) -> None:
            self.set_header("Connection", "keep-alive")
            await self.flush()
            self.write("one")
            await self.flush()
            await gate.wait()
            self.write("two")

    served = await serve(Streams)
    async with served.client() as client:
        for _ in range(2):
            gate.clear()
            client.send(GET)
            status, headers = await client.read_headers()
            assert (status, headers["Transfer-Encoding"], headers["Connection"]) == (200, "chunked", "keep-alive")
            chunks = client.chunks()
            assert await anext(chunks) == b"one"
            gate.set()
            assert [chunk async for chunk in chunks] == [b"two"]


async def test_headers_and_body_are_sent_in_one_write(serve: Any) -> None:
    class Split(HTTPMessageDelegate, HTTPServerConnectionDelegate):
        def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
            self.connection = request_conn
            return self

        def finish(self) -> None:
            self.connection.write_headers(ResponseStartLine("", 200, "OK"), HTTPHeaders({"Content-Length": "2"}))
            self.connection.write(b"ok")
            self.connection.finish()

    served = await serve(Split())
    reader, writer = await asyncio.open_connection(*served.address)
    writer.write(GET)
    packet = await reader.read(1_000)
    assert packet.endswith(b"\r\n\r\nok")
    writer.write(GET * 3)  # answered within the read, each in its turn
    for _ in range(3):
        assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_an_aborted_answer_has_no_valid_end(serve: Any, version: bytes) -> None:
    half_was_read = asyncio.Event()

    class Fails(RequestHandler):
        async def get(self) -> None:
            self.write("half")
            await self.flush()
            await half_was_read.wait()
            self.request.connection.abort()  # type: ignore[union-attr]
            self.write("never")

    served = await serve(Fails)
    async with served.client() as client:
        client.send(b"GET / HTTP/" + version + b"\r\nHost: x\r\n\r\n")
        await client.read_headers()
        if version == b"1.0":
            assert await client.reader.readexactly(4) == b"half"
            half_was_read.set()
            with pytest.raises(ConnectionResetError):
                await client.closed()
        else:
            chunks = client.chunks()
            assert await anext(chunks) == b"half"
            half_was_read.set()
            with pytest.raises(asyncio.IncompleteReadError):
                await anext(chunks)


@pytest.mark.parametrize(("promised", "sent"), [(10, 4), (3, 4)])
async def test_a_wrong_content_length_closes_the_connection(serve: Any, promised: int, sent: int) -> None:
    errors = []

    class Lies(RequestHandler):
        async def get(self) -> None:
            self.set_header("Content-Length", str(promised))
            self.write("a" * (sent - 2))
            await self.flush()
            self.write("aa")
            try:
                await self.flush()
                self.request.connection.finish()
            except HTTPOutputError as error:
                errors.append(error)
            self._auto_finish = False

    served = await serve(Lies)
    async with served.client() as client:
        client.send(GET)
        await client.read_headers()
        assert len(await client.closed()) < promised
        assert len(errors) == 1


async def test_back_pressure_holds_the_handler_and_bounds_memory(serve: Any, eventually: Any) -> None:
    written = 0
    largest = 0

    class Floods(RequestHandler):
        async def get(self) -> None:
            nonlocal written, largest
            for _ in range(2_000):
                self.write(b"x" * 16_384)
                await self.flush()
                written += 16_384
                (connection,) = served.server._connections
                largest = max(largest, connection._transport.get_write_buffer_size())

    served = await serve(Floods)
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8_192)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, served.address)
    await loop.sock_sendall(sock, GET)
    assert 0 < await until_still(lambda: written) < 32_000_000
    received = 0
    while received < 2_000 * 16_384:
        received += len(await loop.sock_recv(sock, 1_000_000))
    await eventually(lambda: written == 2_000 * 16_384)
    assert largest <= 65_536 + 16_384 + 100
    sock.close()


async def test_client_that_does_not_read_is_dropped_and_the_handler_is_notified(serve: Any, eventually: Any) -> None:
    outcome: list[object] = []

    class Floods(RequestHandler):
        async def get(self) -> None:
            try:
                while True:
                    self.write(b"x" * 65_536)
                    await self.flush()
            except StreamClosedError as error:
                outcome.append(error)

        def on_connection_close(self) -> None:
            outcome.append("closed")

    served = await serve(Floods, write_timeout=0.2)
    async with served.client() as client:
        client.writer.transport.pause_reading()
        client.send(GET)
        await eventually(lambda: len(outcome) == 2)
        assert outcome[0] == "closed"
        await eventually(lambda: served.server.connections == 0)


async def test_answers_that_are_not_read_stop_the_pipeline(serve: Any) -> None:
    answered = 0

    class Large(RequestHandler):
        def get(self) -> None:
            nonlocal answered
            answered += 1
            self.write(b"x" * 1_000_000)

    served = await serve(Large)
    async with served.client() as client:
        client.writer.transport.pause_reading()
        client.send(GET * 100)
        assert 0 < await until_still(lambda: answered) < 20
        client.writer.transport.resume_reading()
        for _ in range(100):
            assert len((await client.read()).body) == 1_000_000


async def test_a_stale_handler_cannot_write_into_the_next_answer(serve: Any, eventually: Any) -> None:
    stale: list[Any] = []

    class Keeps(RequestHandler):
        def get(self) -> None:
            stale.append(self.request.connection)
            self.write("mine")

    served = await serve(Keeps)
    async with served.client() as client:
        await client.ask(GET)
        client.send(GET[:10])
        with pytest.raises(StreamClosedError):
            await stale[0].write(b"stray")
        stale[0].finish()
        stale[0].abort()
        assert (await client.ask(GET[10:])).body == b"mine"


async def test_a_failing_application_answers_500(serve: Any, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(HTTPServerConnectionDelegate):
        def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
            raise ValueError("broken")

    served = await serve(Broken())
    answer = await served.ask(GET)
    assert (answer.status, answer.error["code"]) == (500, "internal_error")
    assert "broken" in caplog.text
    assert b"broken" not in answer.body


async def test_a_line_break_in_a_header_is_not_written(serve: Any) -> None:
    errors = []

    class Splits(HTTPMessageDelegate, HTTPServerConnectionDelegate):
        def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
            self.connection = request_conn
            return self

        def finish(self) -> None:
            headers = HTTPHeaders()
            headers._as_list["X-A"] = ["a\r\nSet-Cookie: b"]
            with pytest.raises(ValueError, match="X-A") as caught:
                self.connection.write_headers(ResponseStartLine("", 200, "OK"), headers)
            errors.append(caught)
            raise caught.value

    served = await serve(Splits())
    assert (await served.ask(GET)).status == 500
    assert errors


@pytest.mark.parametrize("character", ["\r", "\n", "\0"])
@pytest.mark.parametrize("where", ["name", "value", "reason"])
async def test_no_line_break_and_no_nul_reaches_a_header_block(serve: Any, where: str, character: str) -> None:
    bad = f"a{character}Set-Cookie: b"
    headers = {bad: "1"} if where == "name" else {"X-A": bad} if where == "value" else {}
    reason = bad if where == "reason" else "OK"
    refused: list[str] = []

    class Splits(HTTPMessageDelegate, HTTPServerConnectionDelegate):
        def start_request(self, server_conn: object, request_conn: HTTPConnection) -> HTTPMessageDelegate:
            self.connection: Any = request_conn
            return self

        def finish(self) -> None:
            ways: dict[str, Callable[[], object]] = {
                "begin": lambda: self.connection._begin(200, reason, headers, headers.items(), b"x"),
                "answer": lambda: self.connection.answer(200, headers, b"x"),
                "write_head": lambda: self.connection.write_head(200, headers),
            }
            for name, way in ways.items():
                if name == "begin" or where != "reason":
                    with pytest.raises(ValueError, match="Illegal characters"):
                        way()
                    refused.append(name)
            self.connection.answer(200, {}, b"whole")

    served = await serve(Splits())
    answer = await served.ask(GET)
    assert (answer.status, answer.body) == (200, b"whole")
    assert len(refused) == (1 if where == "reason" else 3)
    assert "Set-Cookie" not in answer.headers


async def test_a_handler_whose_headers_are_refused_answers_500(serve: Any) -> None:
    class Splits(RequestHandler):
        def get(self) -> None:
            self._headers._as_list["X-A"] = ["a\r\nSet-Cookie: b"]

    served = await serve(Splits)
    answer = await served.ask(GET)
    assert (answer.status, answer.error["code"]) == (500, "internal_error")


async def test_answers_without_a_body_have_no_framing(serve: Any) -> None:
    class Empty(RequestHandler):
        def get(self) -> None:
            self.set_status(204)

    served = await serve(Empty)
    async with served.client() as client:
        for _ in range(2):
            client.send(GET)
            status, headers = await client.read_headers()
            assert status == 204
            assert "Transfer-Encoding" not in headers
            assert "Content-Length" not in headers


async def test_small_writes_are_sent_at_once(serve: Any) -> None:
    """With Nagle's algorithm the first token of a stream was 43 ms late instead of 0.8 ms."""

    class Hello(RequestHandler):
        def get(self) -> None:
            self.write("hello")

    served = await serve(Hello)
    async with served.client() as client:
        await client.ask(GET)
        (connection,) = served.server._connections
        assert connection.socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
