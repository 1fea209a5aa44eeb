"""Answers whose content has ended, or never begins, but whose bytes go on: little of them is read."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator

import pytest

from gateway.errors import UpstreamInvalidResponse
from tests.http_client.loops import io_loop, loop_kind  # noqa: F401 - fixtures
from tests.http_client.peer import CHUNKED, Line, Peer, assert_closed
from tests.http_client.test_http_client import client

PIECE = 64 * 1024
OFFERED = 512 * PIECE  # 32 MiB, which a client without a limit reads
READ_AT_MOST = 16 * 2**20  # bytes that the peer could send: what the client read, and the buffers of both sockets
GZIP_HEAD = b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def after_gzip() -> Iterator[bytes]:
    yield GZIP_HEAD + chunk(gzip.compress(b'{"a":1}'))
    while True:
        yield chunk(bytes(PIECE))


def after_empty_gzip() -> Iterator[bytes]:
    body = gzip.compress(b"") + b"x"
    yield b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)


def gzip_without_content() -> Iterator[bytes]:
    squeeze = zlib.compressobj(wbits=31)
    yield GZIP_HEAD + chunk(squeeze.compress(b"") + squeeze.flush(zlib.Z_SYNC_FLUSH))
    while True:
        yield chunk(b"\x00\x00\x00\xff\xff" * (PIECE // 5))  # stored blocks of no bytes, never the last one


def trailers() -> Iterator[bytes]:
    yield CHUNKED + b"2\r\nok\r\n0\r\n"
    for number in range(OFFERED):
        yield b"X-Trailer-%d: %b\r\n" % (number, b"y" * PIECE)


def one_trailer() -> Iterator[bytes]:
    yield CHUNKED + b"2\r\nok\r\n0\r\nX-Trailer: "
    while True:
        yield b"y" * PIECE


def chunk_extension() -> Iterator[bytes]:
    yield CHUNKED + b"2\r\nok\r\n2;name="
    while True:
        yield b"y" * PIECE


@pytest.mark.parametrize(
    "body", [after_gzip, after_empty_gzip, gzip_without_content, trailers, one_trailer, chunk_extension]
)
async def test_bytes_after_the_content_of_an_answer_are_refused(body) -> None:
    sent = 0

    async def behave(line: Line) -> None:
        nonlocal sent
        await line.request()
        for piece in body():
            if sent >= OFFERED:
                break
            await line.send(piece)
            sent += len(piece)
        line.writer.close()

    async with Peer(behave) as peer, client() as link:
        answer = await link.send("POST", peer.url, body=b"{}")
        with pytest.raises(UpstreamInvalidResponse):
            await answer.read()
        await assert_closed(peer.lines[0])
    assert sent < READ_AT_MOST


async def test_few_trailers_and_chunk_extensions_are_ignored() -> None:
    async def behave(line: Line) -> None:
        await line.request()
        await line.send(CHUNKED + b"2;name=value\r\nok\r\n0\r\nX-Checksum: abc\r\n\r\n")

    async with Peer(behave) as peer, client() as link, await link.send("POST", peer.url, body=b"{}") as answer:
        assert await answer.read() == b"ok"


async def test_stream_whose_frames_arrive_apart_from_their_content_is_not_limited() -> None:
    events = 12_000  # 7 bytes of framing each: over 64 KiB together

    async def behave(line: Line) -> None:
        await line.request()
        await line.send(CHUNKED)
        for _ in range(events):
            await line.send(b"5\r\n")
            await line.send(b"abcde\r\n")
        await line.send(b"0\r\n\r\n")

    async with Peer(behave) as peer, client() as link, await link.send("POST", peer.url, body=b"{}") as answer:
        assert len(await answer.read()) == 5 * events


async def read_compressed(document: bytes) -> bytes:
    """What the client reads of an answer with this document in gzip."""

    async def behave(line: Line) -> None:
        await line.request()
        body = gzip.compress(document)
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(body) + body)

    async with Peer(behave) as peer, client() as link:
        answer = await link.send("POST", peer.url, body=b"{}")
        return await answer.read()


async def test_answer_that_compresses_well_is_read() -> None:
    document = b'{"data":[%b]}' % b",".join(b'{"index":%d,"text":"the same words again"}' % n for n in range(60_000))
    assert await read_compressed(document) == document


async def test_answer_that_inflates_more_than_a_hundredfold_is_refused() -> None:
    with pytest.raises(UpstreamInvalidResponse) as caught:
        await read_compressed(bytes(4 * 2**20))
    assert "100 times" in (caught.value.detail or "")
