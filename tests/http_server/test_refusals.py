"""What a server must not accept gets the OpenAI error body and a closed connection, and the server lives on."""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest
from tornado.web import RequestHandler, stream_request_body

from tests.delays import caller_is_silent_for

pytestmark = pytest.mark.gen_test

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


class Hello(RequestHandler):
    """Says hello."""

    def get(self) -> None:
        self.write("hello")

    post = get


MALFORMED = {
    "bare LF after the request line": b"GET / HTTP/1.1\nHost: x\r\n\r\n",
    "bare LF after a header": b"GET / HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
    "bare LF at the end of the head": b"GET / HTTP/1.1\r\nHost: x\r\n\nGET / HTTP/1.1\r\n\r\n",
    "bare CR in a header": b"GET / HTTP/1.1\r\nHost: x\rA: b\r\n\r\n",
    "folded header": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    "NUL in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
    "control character in a value": b"GET / HTTP/1.1\r\nHost: x\r\nA: b\1c\r\n\r\n",
    "space before the colon": b"GET / HTTP/1.1\r\nHost: x\r\nA : b\r\n\r\n",
    "bad character in a name": b"GET / HTTP/1.1\r\nHost: x\r\nA(b): c\r\n\r\n",
    "empty name": b"GET / HTTP/1.1\r\nHost: x\r\n: c\r\n\r\n",
    "no colon": b"GET / HTTP/1.1\r\nHost: x\r\nA\r\n\r\n",
    "equal Content-Lengths": POST + b"Content-Length: 1\r\nContent-Length: 1\r\n\r\na",
    "different Content-Lengths": POST + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "list of Content-Lengths": POST + b"Content-Length: 1, 1\r\n\r\na",
    "signed Content-Length": POST + b"Content-Length: +1\r\n\r\na",
    "hexadecimal Content-Length": POST + b"Content-Length: 0x1\r\n\r\na",
    "negative Content-Length": POST + b"Content-Length: -1\r\n\r\na",
    "empty Content-Length": POST + b"Content-Length:\r\n\r\n",
    "overflowing Content-Length": POST + b"Content-Length: 99999999999999999999999\r\n\r\n",
    "Content-Length, then chunked": POST + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunked, then Content-Length": POST + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
    "chunked twice": POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "another encoding under chunked": POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    "unknown transfer encoding": POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "chunked in HTTP/1.0": b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "chunk size with a prefix": POST + b"Transfer-Encoding: chunked\r\n\r\n0x1\r\na\r\n0\r\n\r\n",
    "chunk size with a space": POST + b"Transfer-Encoding: chunked\r\n\r\n1 \r\na\r\n0\r\n\r\n",
    "chunk size ended by LF": POST + b"Transfer-Encoding: chunked\r\n\r\n1\na\r\n0\r\n\r\n",
    "chunk longer than its size": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n",
    "overflowing chunk size": POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n",
    "tunnel with an unknown coding": b"CONNECT / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: 0\r\n\r\n",
    "upgrade with both lengths": POST
    + b"Upgrade: h2c\r\nConnection: upgrade\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "no Host": b"GET / HTTP/1.1\r\n\r\n",
    "two Hosts": b"GET / HTTP/1.1\r\nHost: x\r\nHost: x\r\n\r\n",
    "bad Host": b"GET / HTTP/1.1\r\nHost: a,b\r\n\r\n",
    "HTTP/0.9": b"GET /\r\n\r\n",
    "HTTP/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "HTTP/1.2": b"GET / HTTP/1.2\r\nHost: x\r\n\r\n",
    "space in the target": b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
    "bytes above ASCII in the target": b"GET /\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    "unknown method": b"FETCH / HTTP/1.1\r\nHost: x\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "101 headers": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 100 + b"\r\n",
    "a name without end": b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a" * 70_000,
    "a value without end": b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 70_000,
    "a target without end": b"GET /" + b"a" * 70_000,
    "headers of more than 64 KiB": b"GET / HTTP/1.1\r\nHost: x\r\n" + (b"A: " + b"b" * 5_000 + b"\r\n") * 14 + b"\r\n",
    "empty lines without end": b"\r\n" * 40_000,
    "trailers without end": POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nT: " + b"t" * 200_000,
    "chunk extension without end": POST + b"Transfer-Encoding: chunked\r\n\r\n1;" + b"e" * 200_000,
}


@pytest.mark.parametrize("case", MALFORMED)
async def test_malformed_requests_are_refused_with_the_error_body(serve: Any, case: str) -> None:
    served = await serve(Hello)
    async with served.client() as client:
        for _ in range(2):
            assert (await client.ask(GET)).status == 200
        answer = await client.ask(MALFORMED[case])
        assert (answer.status, answer.headers["Connection"]) == (400, "close")
        assert answer.headers["Content-Type"] == "application/json"
        assert (answer.error["type"], answer.error["code"]) == ("invalid_request_error", "invalid_value")
        assert await client.closed() == b""
    assert (await served.ask(GET)).status == 200


async def test_incomplete_request_is_answered_with_an_error(serve: Any) -> None:
    served = await serve(Hello)
    for start in (
        b"GET / HT",
        POST + b"Content-Length: 9\r\n\r\nabc",
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\na",
    ):
        async with served.client() as client:
            client.send(start)
            client.writer.write_eof()
            answer = await client.read()
            assert (answer.status, answer.error["code"]) == (400, "invalid_value")
            assert await client.closed() == b""


async def test_a_body_over_the_limit_is_refused_before_it_is_read(serve: Any) -> None:
    served = await serve(Hello, max_body_bytes=1_000)
    async with served.client() as client:
        client.send(POST + b"Content-Length: 1001\r\n\r\n")
        answer = await client.read()
        assert (answer.status, answer.error["code"]) == (413, "request_too_large")
        assert answer.headers["Connection"] == "close"
    async with served.client() as client:
        answer = await client.ask(POST + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n")
        assert answer.status == 413
    async with served.client() as client:
        chunk = b"200\r\n" + b"x" * 512 + b"\r\n"
        assert (await client.ask(POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 2)).status == 413
    assert (await served.ask(POST + b"Content-Length: 1000\r\n\r\n" + b"x" * 1_000)).status == 200


async def test_the_refusal_reaches_a_client_that_keeps_sending(serve: Any) -> None:
    served = await serve(Hello, max_body_bytes=1_000)
    async with served.client() as client:
        client.send(POST + b"Content-Length: 8000000\r\n\r\n" + b"x" * 8_000_000)
        await client.writer.drain()
        assert (await client.read()).status == 413
        assert await client.closed() == b""


async def test_a_handler_sets_its_own_body_limit(serve: Any) -> None:
    @stream_request_body
    class Large(RequestHandler):
        async def prepare(self) -> None:
            await asyncio.sleep(0)
            self.request.connection.set_max_body_size(3_000)

        def data_received(self, chunk: bytes) -> None:
            pass

        def post(self) -> None:
            self.write("ok")

        closed = 0

        def on_connection_close(self) -> None:
            super().on_connection_close()
            Large.closed += 1

    served = await serve(Large, max_body_bytes=1_000)
    assert (await served.ask(POST + b"Content-Length: 3000\r\n\r\n" + b"x" * 3_000)).status == 200
    assert (await served.ask(POST + b"Content-Length: 3001\r\n\r\n")).status == 413
    assert Large.closed == 1


async def test_slow_heads_and_bodies_time_out_with_408(serve: Any) -> None:
    limits = {"header_timeout": 0.2, "body_idle_timeout": 0.2, "keepalive_timeout": 0.4, "min_body_rate": 1000}
    served = await serve(Hello, **limits)
    for start in (b"GET / HTTP/1.1\r\nHo", POST + b"Content-Length: 9\r\n\r\nabc"):
        async with served.client() as client:
            assert (await client.ask(GET)).status == 200
            client.send(start)
            answer = await client.read()
            assert (answer.status, answer.error["code"]) == (408, "request_timeout")
            assert await client.closed() == b""
    async with served.client() as client:
        client.send(POST + b"Content-Length: 9999\r\n\r\n")
        for _ in range(100):  # never idle for long, and still too slow
            client.send(b"x")
            await caller_is_silent_for(0.02)
            if client.reader._buffer:  # type: ignore[attr-defined]
                break
        else:
            pytest.fail("a trickle of bytes was accepted")
        assert (await client.read()).status == 408


async def test_idle_and_silent_connections_are_closed_without_an_answer(serve: Any) -> None:
    served = await serve(Hello, header_timeout=0.1, keepalive_timeout=0.2)
    async with served.client() as silent, served.client() as idle:
        assert (await idle.ask(GET)).status == 200
        assert await silent.closed() == b""
        assert await idle.closed() == b""


async def test_a_body_timeout_of_the_request_replaces_the_rate(serve: Any) -> None:
    @stream_request_body
    class Hurried(RequestHandler):
        def prepare(self) -> None:
            self.request.connection.set_body_timeout(0.2)

        def data_received(self, chunk: bytes) -> None:
            pass

    served = await serve(Hurried, header_timeout=0.2)
    assert (await served.ask(POST + b"Content-Length: 9\r\n\r\nabc")).status == 408


async def test_invalid_bytes_never_stop_the_server(serve: Any) -> None:
    served = await serve(Hello)
    seed = random.Random(7)
    good = POST + b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    for _ in range(150):
        data = bytearray(good)
        for _ in range(seed.randint(1, 4)):
            data[seed.randrange(len(data))] = seed.randrange(256)
        async with served.client() as client:
            client.send(bytes(data) + GET)
            client.writer.write_eof()
            left = await client.closed()
            assert b"HTTP/1.1 5" not in left
            if b"HTTP/1.1 200" not in left:
                assert not left or b'{"error":{' in left
    assert (await served.ask(GET)).status == 200
