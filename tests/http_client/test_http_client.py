"""Our own HTTP/1.1 client on real sockets, against a peer that does exactly what the test says; on both event loops."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import time
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gateway.errors import (
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamTruncated,
    UpstreamUnreachable,
)
from gateway.http_client import pool
from gateway.http_client.connect import UpstreamRoute
from gateway.http_client.connection import ClientConnection
from gateway.http_client.deadline_timer import Deadlines
from gateway.http_client.pool import Origin, Pool
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream
from tests.delays import caller_is_silent_for, forever, upstream_is_silent_for
from tests.http_client.loops import io_loop, loop_kind  # noqa: F401 - fixtures
from tests.http_client.peer import CHUNKED, OK, Line, Peer, always_ok, assert_closed, assert_closed_at_once, each
from tests.leftovers import garbage
from tests.polling import at_once, turns, until, until_still

CERTIFICATES = Path(__file__).parents[1] / "certificates"


@contextlib.asynccontextmanager
async def client(**options: object) -> AsyncIterator[Upstream]:
    link = Upstream(**options)  # type: ignore[arg-type]
    try:
        yield link
    finally:
        await link.close()


async def fetch(link: Upstream, url: str, method: str = "POST") -> bytes:
    async with await link.send(method, url, body=b"{}" if method == "POST" else None) as answer:
        return await answer.read()


# Requests ------------------------------------------------------------------------------------------------------------


async def test_request_has_the_required_header_lines_and_is_sent_in_one_segment() -> None:
    segments: list[bytes] = []

    async def behave(line: Line) -> None:
        segments.append(await line.reader.read(65536))
        await line.send(OK)

    async with Peer(behave) as peer, client() as link:
        headers = {"Authorization": "Bearer k", "user-agent": "mine", "Host": "other", "Content-Length": "99"}
        async with await link.send("POST", peer.url, headers=headers, body=b"{}") as answer:
            assert await answer.read() == b"ok"
    head, body = segments[0].split(b"\r\n\r\n")
    assert head.split(b"\r\n")[:2] == [b"POST /path?q=1 HTTP/1.1", b"Host: other"]
    assert set(head.split(b"\r\n")[2:]) == {
        b"Accept-Encoding: identity", b"Accept: */*", b"Authorization: Bearer k", b"user-agent: mine",
        b"Content-Length: 2",
    }  # fmt: skip
    assert body == b"{}"


async def test_empty_body_has_a_content_length_only_for_methods_with_a_body() -> None:
    async with Peer(each(OK, OK)) as peer, client() as link:
        for method in ("GET", "POST"):
            async with await link.send(method, peer.url) as answer:
                await answer.read()
        assert b"Content-Length" not in peer.lines[0].requests[0]
        assert b"Content-Length: 0\r\n" in peer.lines[0].requests[1]


@pytest.mark.parametrize("header", [("X", "a\r\nY: b"), ("X", "a\nb"), ("X: y", "a"), ("X", "a\0")])
async def test_header_with_a_line_break_is_never_sent(header: tuple[str, str]) -> None:
    async with Peer(always_ok) as peer, client() as link:
        with pytest.raises(ValueError, match="header"):
            await link.send("POST", peer.url, headers=dict([header]))
        assert not peer.lines


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "http://u:p@x/", "http://x:99999/", "nonsense", "http://[::1"])
async def test_invalid_address_is_unreachable(url: str) -> None:
    async with client() as link:
        with pytest.raises(UpstreamUnreachable):
            await link.send("GET", url)


async def test_path_with_spaces_and_line_ends_is_quoted() -> None:
    async with Peer(always_ok) as peer, client() as link:
        await fetch(link, peer.url.replace("/path", "/a b%20c\u00e9"), "GET")
        assert peer.lines[0].requests[0].startswith(b"GET /a%20b%20c%C3%A9?q=1 HTTP/1.1\r\n")


# Answers -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raw", "body", "kept"),
    [
        (OK, b"ok", True),
        (CHUNKED + b"1;x=y\r\no\r\n1\r\nk\r\n0\r\nTrailer: 1\r\n\r\n", b"ok", True),
        (b"HTTP/1.1 200 OK\r\nX-Empty:\r\nContent-Length: 2\r\n\r\nok", b"ok", True),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\n" + OK, b"ok", True),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b"", True),
        (b"HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", b"", True),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", b"ok", False),
    ],
)
async def test_answer_of_any_framing_is_read_in_pieces_of_any_size(raw: bytes, body: bytes, kept: bool) -> None:
    async def behave(line: Line) -> None:
        await line.request()
        for byte in raw:
            await line.send(bytes([byte]))
            await asyncio.sleep(0)
        await line.request()
        await line.send(raw)

    async with Peer(behave) as peer, client() as link:
        assert await fetch(link, peer.url) == body
        if kept:
            assert await fetch(link, peer.url) == body
            assert len(peer.lines) == 1
        else:
            await assert_closed(peer.lines[0])


async def test_body_that_ends_with_the_connection_is_complete() -> None:
    first_was_read = asyncio.Event()

    async def behave(line: Line) -> None:
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\n\r\nfirst ")
        await first_was_read.wait()
        await line.send(b"last")
        line.writer.close()

    async with Peer(behave) as peer, client() as link, await link.send("POST", peer.url) as answer:
        assert await answer.read_chunk() == b"first "
        first_was_read.set()
        assert await answer.read() == b"last"


async def test_answer_to_a_head_request_has_no_body_even_with_a_content_length() -> None:
    async with Peer(each(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")) as peer, client() as link:
        assert await fetch(link, peer.url, "HEAD") == b""


async def test_headers_are_found_in_any_case_and_the_first_counts() -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-One:  a \r\nx-one: b\r\nX-One: c\r\nContent-Length: 0\r\n\r\n"
    async with Peer(each(raw)) as peer, client() as link, await link.send("GET", peer.url) as answer:
        assert (answer.headers["x-ONE"], answer.headers.get("none", "-"), "X-One" in answer.headers) == ("a", "-", True)


@pytest.mark.parametrize("lines", [b"X: " + b"y" * 70_000, b"\r\n".join([b"X: y"] * 30_000)])
async def test_headers_over_64_kib_are_refused(lines: bytes) -> None:
    async with Peer(each(b"HTTP/1.1 200 OK\r\n" + lines + b"\r\n\r\n")) as peer, client() as link:
        with pytest.raises(UpstreamInvalidResponse):
            await fetch(link, peer.url)
        await assert_closed(peer.lines[0])


async def test_interim_answers_without_end_are_refused() -> None:
    async with Peer(each(b"HTTP/1.1 100 Continue\r\nX: y\r\n\r\n" * 5000)) as peer, client() as link:
        with pytest.raises(UpstreamInvalidResponse):
            await fetch(link, peer.url)


async def test_switch_of_protocols_is_refused() -> None:
    raw = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
    async with Peer(each(raw)) as peer, client() as link:
        with pytest.raises(UpstreamInvalidResponse):
            await fetch(link, peer.url)


async def test_data_before_broken_framing_are_delivered_first() -> None:
    async with Peer(each(CHUNKED + b"4\r\nabcd\r\nzz\r\n")) as peer, client() as link:
        answer = await link.send("POST", peer.url)
        assert await answer.read_chunk() == b"abcd"
        with pytest.raises(UpstreamInvalidResponse):
            await answer.read_chunk()
        await assert_closed(peer.lines[0])


@pytest.mark.parametrize(("raw", "kind"), [(b"", UpstreamUnreachable), (CHUNKED + b"1\r\na\r\n", UpstreamTruncated)])
async def test_reset_is_unreachable_before_the_head_and_truncated_after(raw: bytes, kind: type[Exception]) -> None:
    go = asyncio.Event()

    async def behave(line: Line) -> None:
        await line.request()
        await line.send(raw)
        await go.wait() if raw else None
        line.reset()

    async with Peer(behave) as peer, client() as link:
        with pytest.raises(kind):
            async with await link.send("POST", peer.url) as answer:
                go.set()
                await answer.read()


# The pool ------------------------------------------------------------------------------------------------------------


async def test_unread_answer_is_not_disturbed_by_the_next_one_on_its_connection() -> None:
    async with Peer(each(OK, OK.replace(b"ok", b"no"))) as peer, client() as link:
        first = await link.send("POST", peer.url)
        second = await link.send("POST", peer.url)
        assert (await first.read(), await second.read(), len(peer.lines)) == (b"ok", b"no", 1)
        first.close()


@pytest.mark.parametrize("stray", [b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil", b"HTTP/1.1 2", b"garbage"])
async def test_unrequested_answer_never_reaches_the_next_caller(stray: bytes) -> None:
    async with Peer(each(OK + stray)) as peer, client() as link:
        assert [await fetch(link, peer.url) for _ in range(3)] == [b"ok"] * 3
        assert len(peer.lines) == 3


async def test_idle_connection_that_receives_data_is_closed() -> None:
    async with Peer(each(OK)) as peer, client() as link:
        await fetch(link, peer.url)
        await peer.lines[0].send(OK)
        await assert_closed_at_once(peer.lines[0])


async def test_idle_connection_is_closed_after_the_keepalive_time() -> None:
    async with Peer(each(OK)) as peer, client(keepalive=0.1) as link:
        await asyncio.gather(fetch(link, peer.url), fetch(link, peer.url))
        for line in peer.lines:
            await assert_closed(line, within=0.5)


async def test_most_recently_used_connection_is_reused_first() -> None:
    async with Peer(always_ok) as peer, client() as link:
        await asyncio.gather(*(fetch(link, peer.url) for _ in range(3)))
        for _ in range(4):
            await fetch(link, peer.url)
        assert sorted(len(line.requests) for line in peer.lines) == [1, 1, 5]


async def test_idle_connections_are_bounded_and_busy_ones_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "MAX_IDLE", 2)
    async with Peer(always_ok) as peer, client() as link:
        await asyncio.gather(*(fetch(link, peer.url) for _ in range(150)))
        assert len(peer.lines) == 150
        await until(lambda: sum(line.ended.is_set() for line in peer.lines) >= 148)
        await asyncio.gather(*(fetch(link, peer.url) for _ in range(2)))
        assert len(peer.lines) == 150, "two connections were kept"


async def test_connection_lost_before_it_was_used_is_unreachable_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = ClientConnection.connection_made

    def made_and_lost(connection: ClientConnection, transport: asyncio.BaseTransport) -> None:
        made(connection, transport)
        connection._transport.abort()

    monkeypatch.setattr(ClientConnection, "connection_made", made_and_lost)
    async with Peer(always_ok) as peer, client() as link:
        with pytest.raises(UpstreamUnreachable):
            await link.send("POST", peer.url, timeouts=Timeouts(first_byte=0.5))


async def test_post_on_a_connection_that_breaks_is_not_sent_again() -> None:
    """RFC 9110, 9.2.2: nobody can tell whether the server acted on it."""

    async def behave(line: Line) -> None:
        await line.request()
        await line.send(OK)
        await line.request()
        line.writer.close()

    async with Peer(behave) as peer, client() as link:
        await fetch(link, peer.url)
        with pytest.raises(UpstreamUnreachable):
            await fetch(link, peer.url)
        assert len(peer.lines) == 1
        assert await fetch(link, peer.url) == b"ok"


async def test_closing_the_client_closes_busy_and_idle_connections() -> None:
    async with Peer(each(OK, CHUNKED)) as peer, client() as link:
        await asyncio.gather(fetch(link, peer.url), fetch(link, peer.url))
        answer = await link.send("POST", peer.url)
        await link.close()
        for line in peer.lines:
            await assert_closed_at_once(line)
        with pytest.raises(UpstreamTruncated):
            await answer.read()


@pytest.mark.slow
async def test_released_stream_that_does_not_end_is_closed_after_a_second() -> None:
    async with Peer(each(CHUNKED + b"e\r\ndata: [DONE]\n\n\r\n")) as peer, client() as link:
        async with await link.send("POST", peer.url) as answer:
            assert len(await answer.read_events()) == 1
            answer.release()
        released = time.monotonic()
        await assert_closed(peer.lines[0], within=1.5)
        assert time.monotonic() - released > 0.7


async def test_released_stream_that_keeps_sending_data_is_closed_at_once() -> None:
    async def behave(line: Line) -> None:
        await line.request()
        await line.send(CHUNKED)
        while not line.writer.transport.is_closing():
            await line.send(b"400\r\n" + b"x" * 1024 + b"\r\n")

    async with Peer(behave) as peer, client() as link:
        answer = await link.send("POST", peer.url)
        await answer.read_chunk()
        answer.release()
        await assert_closed_at_once(peer.lines[0])


# Back-pressure and time ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rest", ["chunks", "whole"])
async def test_reader_that_pauses_stops_the_server_and_loses_nothing(rest: str) -> None:
    total, sent = 64 * 1024 * 1024, 0

    async def behave(line: Line) -> None:
        nonlocal sent
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total // 65536):
            await line.send(b"x" * 65536)
            sent += 65536

    async with Peer(behave) as peer, client() as link:
        answer = await link.send("POST", peer.url)
        received = len(await answer.read_chunk())
        assert await until_still(lambda: sent) < total // 2
        assert answer._content._size <= 192 * 1024
        if rest == "whole":
            received += len(await answer.read(limit=total))
        else:
            while chunk := await answer.read_chunk():
                received += len(chunk)
        assert received == total


async def test_one_timer_measures_the_idle_time_of_all_connections() -> None:
    class Late:
        def __init__(self, when: float) -> None:
            self.when, self.expired = when, 0.0

        def due(self) -> float:
            return self.when

        def expire(self) -> None:
            self.expired = loop.time()
            deadlines.discard(self)

    loop = asyncio.get_running_loop()
    deadlines, now = Deadlines(loop), loop.time()
    lates = [Late(now + wait) for wait in (0.3, 0.1, 0.2, 9.0)]
    for late in lates:
        deadlines.add(late)
        deadlines.expect(late.when)
    lates[2].when = now + 9  # it went on talking: no timer was touched for that
    async with at_once(within=0.2):
        await until(lambda: lates[1].expired > 0)
    async with at_once(within=0.3):
        await until(lambda: lates[0].expired > 0)
    assert lates[1].expired - now >= 0.09
    assert lates[0].expired - now >= 0.29
    assert not lates[2].expired and not lates[3].expired and deadlines.next >= now + 8.9
    deadlines.close()


async def test_idle_time_restarts_with_every_piece_of_an_answer_read_whole() -> None:
    idle, pause, sent = 1.0, 0.3, 0

    async def behave(line: Line) -> None:
        nonlocal sent
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n")
        for _ in range(4):
            await upstream_is_silent_for(pause)
            await line.send(b"x")
            sent += 1

    async with Peer(behave) as peer, client() as link:
        started = time.monotonic()
        answer = await link.send("POST", peer.url, timeouts=Timeouts(first_byte=5, idle=idle))
        async with at_once(within=4.0):  # after the idle time, not the first byte's
            with pytest.raises(UpstreamTimeout):
                await answer.read()
        assert sent == 4, "the whole took longer than the idle time"
        assert time.monotonic() - started > 4 * pause + 0.9 * idle
        await assert_closed_at_once(peer.lines[0])


async def test_total_time_includes_the_wait_for_the_head() -> None:
    async with Peer(each()) as peer, client() as link, at_once(within=0.5):
        with pytest.raises(UpstreamTimeout):
            await link.send("POST", peer.url, timeouts=Timeouts(total=0.15))


# Uploads -------------------------------------------------------------------------------------------------------------


class Source:
    """Pieces of a request body, counted; after them it may be without end."""

    def __init__(self, pieces: int, size: int = 65536, *, pause: float = 0.0, endless: bool = False) -> None:
        self.produced = 0
        self.closed = False
        self.stream = self._generate(pieces, size, pause, endless)

    async def _generate(self, pieces: int, size: int, pause: float, endless: bool) -> AsyncIterator[bytes]:
        try:
            for _ in range(pieces):
                if pause:
                    await caller_is_silent_for(pause)
                yield bytes(size)
                self.produced += size
            if endless:
                await forever()
        finally:
            self.closed = True


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


async def test_upload_of_90_mib_waits_for_a_slow_server_and_uses_little_memory() -> None:
    go = asyncio.Event()
    received = 0

    async def behave(line: Line) -> None:
        nonlocal received
        await line.reader.readuntil(b"\r\n\r\n")
        await go.wait()
        while received < 90 << 20:
            received += len(await line.reader.read(65536))
        await line.send(OK)

    source = Source(90 << 4)
    async with Peer(behave) as peer, client() as link:
        headers = {"Content-Length": str(90 << 20)}
        before = resident()
        task = asyncio.create_task(link.send("POST", peer.url, headers=headers, body=source.stream))
        assert 0 < await until_still(lambda: source.produced) < 16 << 20  # most of it in the kernel
        go.set()

        def done_in_little_memory() -> bool:
            assert resident() - before < 8 << 20
            return task.done()

        await until(done_in_little_memory)
        assert await (await task).read() == b"ok"
    assert received == 90 << 20 and source.closed


@pytest.mark.parametrize("length", [65536 * 3 - 1, 65536 * 3 + 1])
async def test_upload_with_a_wrong_announced_length_is_cut(length: int) -> None:
    async with Peer(each()) as peer, client() as link:
        source = Source(3)
        with pytest.raises(ValueError, match="Content-Length"):
            await link.send("POST", peer.url, headers={"Content-Length": str(length)}, body=source.stream)
        assert source.closed
        await assert_closed_at_once(peer.lines[0])


async def test_answer_before_the_end_of_an_upload_ends_it() -> None:
    async def behave(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(b"HTTP/1.1 413 Too Large\r\nContent-Length: 3\r\n\r\nbig")

    async with Peer(behave) as peer, client() as link:
        source = Source(1, endless=True)
        async with await link.send("POST", peer.url, body=source.stream) as answer:
            assert (answer.status, await answer.read()) == (413, b"big")
        await until(lambda: source.closed)
        await assert_closed_at_once(peer.lines[0])  # half a request was sent: it cannot carry another


async def test_early_answer_to_a_large_body_does_not_go_back_to_the_pool() -> None:
    async def behave(line: Line) -> None:
        await line.reader.readuntil(b"\r\n\r\n")
        await line.send(OK)
        await forever()

    async with Peer(behave) as peer, client() as link:
        for _ in range(2):
            async with await link.send("POST", peer.url, body=bytes(32 << 20)) as answer:
                assert await answer.read() == b"ok"
        assert len(peer.lines) == 2


async def test_slow_source_does_not_count_as_a_silent_upstream() -> None:
    async def behave(line: Line) -> None:
        await line.reader.readuntil(b"0\r\n\r\n")
        await line.send(OK)

    async with Peer(behave) as peer, client() as link:
        body = Source(3, 10, pause=0.15).stream
        async with await link.send("POST", peer.url, body=body, timeouts=Timeouts(first_byte=0.1)) as answer:
            assert await answer.read() == b"ok"


async def test_upstream_that_stops_reading_an_upload_times_out() -> None:
    async with Peer(lambda line: forever()) as peer, client() as link:
        source = Source(1 << 20)
        with pytest.raises(UpstreamTimeout):
            await link.send("POST", peer.url, body=source.stream, timeouts=Timeouts(first_byte=0.2))
        await until(lambda: source.closed)


async def test_cancelled_upload_closes_socket_and_source() -> None:
    async with Peer(each()) as peer, client() as link:
        source = Source(1, 10, endless=True)
        task = asyncio.create_task(link.send("POST", peer.url, body=source.stream))
        await until(lambda: source.produced > 0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: source.closed)
        await assert_closed_at_once(peer.lines[0])


# Compression ---------------------------------------------------------------------------------------------------------


def raw_deflate(data: bytes) -> bytes:
    squeeze = zlib.compressobj(wbits=-15)
    return squeeze.compress(data) + squeeze.flush()


def coded(coding: str, body: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-ENCODING: %b\r\nContent-Length: %d\r\n\r\n%b" % (
        coding.encode(),
        len(body),
        body,
    )


@pytest.mark.parametrize(
    ("coding", "squeeze"),
    [("gzip", gzip.compress), ("x-gzip", gzip.compress), ("deflate", zlib.compress), ("Deflate", raw_deflate),
     ("identity", bytes)],
)  # fmt: skip
async def test_compressed_events_are_read(coding: str, squeeze: Callable[[bytes], bytes]) -> None:
    text = b"".join(b"data: %d\n\n" % n for n in range(20_000))
    async with Peer(each(coded(coding, squeeze(text)))) as peer, client() as link:
        answer = await link.send("POST", peer.url)
        assert [event.data async for event in answer.events()] == [b"%d" % n for n in range(20_000)]


@pytest.mark.parametrize(
    ("coding", "body", "kind"),
    [
        ("gzip", gzip.compress(b"a" * 999, mtime=0)[:-12], UpstreamTruncated),  # no time: it is part of the test's id
        ("gzip", b"not compressed", UpstreamInvalidResponse),
        ("br", b"whatever", UpstreamInvalidResponse),
    ],
)
async def test_answer_with_invalid_compression_is_refused(coding: str, body: bytes, kind: type[Exception]) -> None:
    async with Peer(each(coded(coding, body))) as peer, client() as link:
        answer = await link.send("POST", peer.url)
        with pytest.raises(kind):
            await answer.read()


# TLS and names -------------------------------------------------------------------------------------------------------


@pytest.fixture
def server_tls() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    return context


async def test_certificate_is_verified_unless_verification_is_disabled(server_tls: ssl.SSLContext) -> None:
    async with Peer(always_ok, server_tls) as peer, client() as link:
        with pytest.raises(UpstreamUnreachable):
            await fetch(link, peer.url)


async def test_tls_names_the_host_keeps_the_connection_and_closes_at_once(server_tls: ssl.SSLContext) -> None:
    names: list[str | None] = []
    server_tls.sni_callback = lambda _, name, __: names.append(name)
    trusting = ssl.create_default_context(cafile=CERTIFICATES / "localhost.pem")
    long = b"HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + b"x" * 5_000_000
    async with Peer(each(OK, long, CHUNKED + b"1\r\na\r\n"), server_tls) as peer, client(tls=trusting) as link:
        assert await fetch(link, peer.url) == b"ok"
        assert await fetch(link, peer.url) == b"x" * 5_000_000
        answer = await link.send("POST", peer.url)
        assert await answer.read_chunk() == b"a"
        answer.close()
        await assert_closed_at_once(peer.lines[0])
        assert (names, len(peer.lines)) == (["localhost"], 1)


async def test_name_is_looked_up_once_for_a_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []
    original = socket.getaddrinfo

    def counting(*args: Any, **options: Any) -> Any:
        looked_up.append(args)
        return original(*args, **options)

    monkeypatch.setattr(socket, "getaddrinfo", counting)
    async with Peer(always_ok) as peer, client() as link:
        await asyncio.gather(*(fetch(link, peer.url) for _ in range(20)))
        assert len(peer.lines) == 20
        assert len(looked_up) <= 1  # uvloop asks its own resolver


@contextlib.contextmanager
def two_sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Sockets with one port on 127.0.0.1 and 127.0.0.2; another test's client may have a port of one of them."""
    while True:
        with socket.socket() as first, socket.socket() as second:
            first.bind(("127.0.0.1", 0))
            try:
                second.bind(("127.0.0.2", first.getsockname()[1]))
            except OSError:
                continue
            yield first, second
            return


@contextlib.contextmanager
def filled(full: socket.socket) -> Iterator[None]:
    """That socket listens with a full backlog: it answers no SYN."""
    full.listen(0)
    with contextlib.ExitStack() as fillers:
        for _ in range(4):
            filler = fillers.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        yield


@pytest.mark.parametrize("first", ["deaf", "refusing"])
async def test_next_address_is_tried_when_the_first_does_not_answer(
    first: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if first == "refusing":  # nothing is waited for after a refusal
        monkeypatch.setattr("gateway.http_client.connect.HEAD_START", 60.0)
    with two_sockets() as (open_, full), filled(full):
        port = open_.getsockname()[1]
        server = await asyncio.start_server(lambda _, writer: writer.close(), sock=open_)
        route = UpstreamRoute("several", port, None)
        route._hosts = asyncio.get_running_loop().create_future()
        route._hosts.set_result(["127.0.0.2" if first == "deaf" else "127.0.0.3", "127.0.0.1"])
        route._known_until = float("inf")
        origin = Origin(Pool(asyncio.get_running_loop(), Deadlines(asyncio.get_running_loop()), keepalive=1, tls=None),
                        "several", port, None)  # fmt: skip
        # A server that stays open after a failure lets uvloop wait in `close` for ever.
        with contextlib.closing(server), contextlib.closing(origin):
            started = time.monotonic()
            async with at_once(within=1.0):
                connection = await route.open(lambda: ClientConnection(origin))
            waited = time.monotonic() - started
            assert connection._transport.get_extra_info("peername")[0] == "127.0.0.1"
            assert waited >= 0.2 or first == "refusing"
        await until(lambda: origin._open == set())  # the attempt that lost is gone as well


def nobody_there() -> UpstreamRoute:
    """A route to two addresses, neither of which answers."""
    route = UpstreamRoute("several", 1, None)
    route._hosts = asyncio.get_running_loop().create_future()
    route._hosts.set_result(["127.0.0.2", "127.0.0.1"])
    route._known_until = float("inf")
    return route


async def test_connect_raises_an_os_error_if_no_address_answers() -> None:
    route = nobody_there()
    with pytest.raises(ConnectionRefusedError):
        await route.open(asyncio.Protocol)


@pytest.mark.slow
async def test_address_that_refuses_leaves_nothing_to_the_garbage_collector(no_collector: None) -> None:
    async with client() as link:
        with contextlib.suppress(UpstreamUnreachable):
            await link.send("POST", "http://127.0.0.1:1/")
        assert not garbage()


async def test_connection_that_takes_too_long_leaves_nothing_to_the_garbage_collector(no_collector: None) -> None:
    """Else each call that ends so stays in memory with its body until the collector comes."""
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepted by the kernel; no TLS handshake comes
        async with client() as link:
            with contextlib.suppress(UpstreamTimeout):
                await link.send("POST", f"https://127.0.0.1:{silent.getsockname()[1]}/", timeouts=Timeouts(connect=0.1))
            await turns()
            assert not garbage()


@pytest.mark.slow
async def test_addresses_that_do_not_answer_leave_nothing_to_the_garbage_collector(no_collector: None) -> None:
    route = nobody_there()
    with contextlib.suppress(ConnectionRefusedError):
        await route.open(asyncio.Protocol)
    assert not garbage()


async def test_cancelled_connect_leaves_nothing_behind() -> None:
    async with Peer(always_ok) as peer, client() as link:
        for _ in range(20):
            task = asyncio.create_task(fetch(link, peer.url))
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert await fetch(link, peer.url) == b"ok"
        assert link._pool is not None
        assert not link._pool.deadlines._awaited
