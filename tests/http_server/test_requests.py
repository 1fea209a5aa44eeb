"""What well-behaved clients send reaches an unmodified Tornado application as it would under Tornado's own server."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tornado.httputil import HTTPHeaders
from tornado.ioloop import IOLoop
from tornado.web import HTTPError, RequestHandler, stream_request_body

from gateway.errors import BadRequest
from gateway.http_server.head import HeaderNames, RequestHeaders
from gateway.http_server.parser import RequestParser
from tests.polling import turns

pytestmark = pytest.mark.gen_test

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


class Echo(RequestHandler):
    """Answers what it was asked."""

    def get(self) -> None:
        request = self.request
        self.write(
            {
                "method": request.method,
                "path": request.path,
                "query": request.query,
                "version": request.version,
                "ip": request.remote_ip,
                "protocol": request.protocol,
                "headers": sorted(request.headers.get_all()),
                "body": request.body.decode(),
            }
        )

    post = put = head = options = get


async def test_a_request_reaches_the_handler_complete(serve: Any) -> None:
    served = await serve(Echo)
    answer = await served.ask(
        b"POST /a?b=c HTTP/1.1\r\nhost: x\r\nx-a: 1 \t\r\nX-A: 2\r\nContent-Length: 4\r\n\r\nbody"
    )
    assert answer.status == 200
    assert b'"path": "/a", "query": "b=c", "version": "HTTP/1.1", "ip": "127.0.0.1", "protocol": "http"' in answer.body
    assert b'[["Content-Length", "4"], ["Host", "x"], ["X-A", "1"], ["X-A", "2"]], "body": "body"' in answer.body
    assert answer.headers["Server"] == "model-gateway"
    assert len(answer.headers.get_list("Date")) == 1


async def test_a_request_may_arrive_byte_by_byte(serve: Any) -> None:
    served = await serve(Echo)
    head = b"\r\nPOST /slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    whole = head + b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\nT: v\r\n\r\n"
    async with served.client() as client:
        for byte in whole * 2:
            client.send(bytes([byte]))
            await asyncio.sleep(0)
        for _ in range(2):
            answer = await client.read()
            assert answer.status == 200
            assert b'"body": "abc"' in answer.body


@pytest.mark.parametrize("cut", range(1, 110, 7))
async def test_a_request_may_be_split_anywhere(serve: Any, cut: int) -> None:
    served = await serve(Echo)
    whole = (
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n7\r\n\r\n\r\nabc\r\n1\r\nd\r\n0\r\n\r\n" + GET
    )
    async with served.client() as client:
        client.send(whole[:cut])
        await turns()
        client.send(whole[cut:])
        assert b'"body": "\\r\\n\\r\\nabcd"' in (await client.read()).body
        assert b'"method": "GET"' in (await client.read()).body


async def test_a_body_full_of_empty_lines_does_not_stop_the_loop(serve: Any) -> None:
    served = await serve(Echo)
    lines = b"\r\n" * 50_000
    async with served.client() as client:
        client.send(b"\r\n" * 1_000)
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        client.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(lines), lines))
        assert (await client.read()).body.count(b"\\r\\n") == 50_000
        assert (await client.ask(GET)).status == 200


async def test_pipelined_requests_are_answered_in_order(serve: Any) -> None:
    running = 0

    class Slow(RequestHandler):
        async def post(self) -> None:
            nonlocal running
            running += 1
            assert running == 1
            await turns(10 if self.request.path == "/0" else 1)
            running -= 1
            self.write(self.request.path + self.request.body.decode())

    served = await serve(Slow)
    async with served.client() as client:
        client.send(
            b"".join(b"POST /%d HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\n\r\n%d" % (n, n % 10) for n in range(50))
        )
        for n in range(50):
            assert (await client.read()).body == b"/%d%d" % (n, n % 10)


async def test_more_pipelined_bytes_than_the_bound_are_answered_too(serve: Any) -> None:
    served = await serve(Echo)
    async with served.client() as client:
        big = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b"b" * 60_000
        client.send(big * 12)
        for _ in range(12):
            assert len((await client.read()).body) > 60_000


async def test_http_1_0_connection_closes_unless_keep_alive_is_requested(serve: Any) -> None:
    served = await serve(Echo)
    async with served.client() as client:
        for _ in range(2):
            answer = await client.ask(b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert (answer.status, answer.headers["Connection"]) == (200, "keep-alive")
        answer = await client.ask(b"GET / HTTP/1.0\r\n\r\n")
        assert answer.headers["Connection"] == "close"
        assert await client.closed() == b""


async def test_http_1_1_connection_stays_open_unless_close_is_requested(serve: Any) -> None:
    served = await serve(Echo)
    async with served.client() as client:
        assert "Connection" not in (await client.ask(GET)).headers
        answer = await client.ask(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert answer.headers["Connection"] == "close"
        assert await client.closed() == b""


async def test_answer_to_head_has_headers_and_no_body(serve: Any) -> None:
    served = await serve(Echo)
    async with served.client() as client:
        answer = await client.ask(b"HEAD / HTTP/1.1\r\nHost: x\r\n\r\n")
        assert int(answer.headers["Content-Length"]) > 100
        assert (await client.ask(GET)).status == 200


@pytest.mark.parametrize("upgrade", [b"Upgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings", b"Upgrade: websocket"])
@pytest.mark.parametrize(
    "body", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
async def test_an_upgrade_is_answered_as_plain_http(serve: Any, upgrade: bytes, body: bytes) -> None:
    served = await serve(Echo)
    answer = await served.ask(b"POST / HTTP/1.1\r\nHost: x\r\n" + upgrade + b"\r\n" + body)
    assert answer.status == 200
    assert b'"method": "POST"' in answer.body
    assert b'"body": "abc"' in answer.body


async def test_an_absolute_request_target_is_read_as_its_path(serve: Any) -> None:
    served = await serve(Echo)
    answer = await served.ask(b"GET http://x:80/v1/models?a=b HTTP/1.1\r\nHost: x\r\n\r\n")
    assert b'"path": "/v1/models", "query": "a=b"' in answer.body


async def test_expect_continue_is_answered_after_prepare_and_only_if_it_passes(serve: Any) -> None:
    @stream_request_body
    class Guarded(RequestHandler):
        async def prepare(self) -> None:
            await asyncio.sleep(0)
            if "Authorization" not in self.request.headers:
                raise HTTPError(401)

        def data_received(self, chunk: bytes) -> None:
            self.chunk = chunk

        def post(self) -> None:
            self.write(self.chunk)

    served = await serve(Guarded)
    ask = b"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 4\r\n"
    async with served.client() as client:
        client.send(ask + b"Authorization: y\r\n\r\n")
        assert (await client.read_headers())[0] == 100
        answer = await client.ask(b"body")
        assert (answer.status, answer.body) == (200, b"body")
        refused = await client.ask(ask + b"\r\n")
        assert (refused.status, refused.headers["Connection"]) == (401, "close")
        assert await client.closed() == b""


async def test_a_streamed_body_waits_for_the_handler(serve: Any) -> None:
    @stream_request_body
    class Slow(RequestHandler):
        def initialize(self) -> None:
            self.busy = self.size = 0
            self.request.connection.set_max_body_size(4_000_000)

        async def data_received(self, chunk: bytes) -> None:
            self.busy += 1
            assert self.busy == 1
            await turns()
            self.busy -= 1
            self.size += len(chunk)

        def post(self) -> None:
            self.write(str(self.size))

    served = await serve(Slow, max_body_bytes=10)
    async with served.client() as client:
        for _ in range(2):
            answer = await client.ask(
                b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n" + b"x" * 3_000_000
            )
            assert answer.body == b"3000000"
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = await client.ask(b"186a0\r\n" + b"x" * 100_000 + b"\r\n" + b"1\r\nx\r\n" * 1000 + b"0\r\n\r\n")
        assert answer.body == b"101000"


async def test_an_early_answer_skips_a_small_body_and_closes_over_a_large_one(serve: Any) -> None:
    @stream_request_body
    class Refuses(RequestHandler):
        def prepare(self) -> None:
            self.set_status(403)
            self.finish("no")

    served = await serve(Refuses)
    async with served.client() as client:
        for _ in range(3):
            answer = await client.ask(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n" + b"b" * 60_000)
            assert (answer.status, answer.headers.get("Connection")) == (403, None)
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n" + b"b" * 5_000_000)
        answer = await client.read()
        assert (answer.status, answer.body, answer.headers["Connection"]) == (403, b"no", "close")
        assert await client.closed() == b""


async def test_headers_are_built_as_tornado_builds_them(io_loop: IOLoop) -> None:
    text = "host: x\r\nX-A: 1\r\nx-a: 2\r\nEmpty:\r\nSpaced:  a b \t\r\nCAFÉ: é\r\n".replace("CAFÉ", "CAFE")
    pairs = [tuple(line.encode("latin-1").split(b":", 1)) for line in text.splitlines()]
    ours = RequestHeaders(HeaderNames().read([(name, value.lstrip()) for name, value in pairs]))
    assert (ours.get("X-A"), ours.get("x-a"), ours.get("Spaced"), ours.get("Not-There")) == ("1,2", "1,2", "a b", None)
    theirs = HTTPHeaders.parse(text)
    assert list(ours.get_all()) == list(theirs.get_all())
    assert ours == theirs
    ours.add("X-A", "3")
    assert ours["x-a"] == "1,2,3"
    assert ours.copy()["X-A"] == "1,2,3"


async def test_repeated_headers_are_all_read_for_every_way_a_head_arrives(io_loop: IOLoop) -> None:
    head = b"GET / HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a: 2\r\nX-A: 3 \r\nX-B: b\r\n\r\n"
    for step in (len(head), 40, 7, 1):
        parser = RequestParser(HeaderNames(), max_header_bytes=1000, max_header_count=5)
        data = bytearray(head)
        for start in range(0, len(head), step):
            stop = min(start + step, len(head))
            assert parser.feed(data, start, stop) == stop
        assert parser.head is not None
        assert list(parser.head.headers.get_all()) == [
            ("Host", "x"),
            ("X-A", "1"),
            ("X-A", "2"),
            ("X-A", "3"),
            ("X-B", "b"),
        ]
        assert parser.head.headers.get("X-A") == "1,2,3"


@pytest.mark.parametrize("head", [b"Host: x\r\nHost: y\r\n", b"Host: x\r\nhost: x\r\n", b""])
async def test_a_second_host_is_refused_however_the_head_arrives(head: bytes, io_loop: IOLoop) -> None:
    data = bytearray(b"GET / HTTP/1.1\r\n" + head + b"X-A: 1\r\n\r\n")
    for step in (len(data), 5):
        parser = RequestParser(HeaderNames(), max_header_bytes=1000, max_header_count=5)
        with pytest.raises(BadRequest, match="exactly one Host"):
            for start in range(0, len(data), step):
                parser.feed(data, start, min(start + step, len(data)))


async def test_too_many_headers_are_counted_with_their_repetitions(io_loop: IOLoop) -> None:
    parser = RequestParser(HeaderNames(), max_header_bytes=1000, max_header_count=5)
    data = bytearray(b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: 1\r\n" * 5 + b"\r\n")
    with pytest.raises(BadRequest, match="more than 5 headers"):
        parser.feed(data, 0, len(data))
