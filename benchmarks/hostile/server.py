"""Servers on the load's cores: an upstream whose answers are hostile, and a sink for the attackers of the other phases.

``python -m benchmarks.hostile.server upstream|sink`` prints its port.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
from collections.abc import AsyncIterator, Awaitable, Callable

KIB = 1024
HEAD = b"HTTP/1.1 %b\r\nContent-Type: %b\r\nConnection: close\r\n%b\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n"
OFFERED = 16 * 1024 * KIB  # bytes of an answer that does not end
PATTERNS = (b"a@" * 400 + b"://x:y@" * 400 + b"Bearer " * 400 + b"sk-" * 800 + b"\\u0000" * 200) * 8


def text_of_error() -> bytes:
    """An error whose message is made for slow patterns."""
    body = b'{"error":{"message":"%b"}}' % PATTERNS.replace(b"\\", b"\\\\")
    return HEAD % (b"400 Bad", b"application/json", b"Content-Length: %d\r\n" % len(body)) + body


# Made once: the core of this server is that of the load, and the phases without attacks have no such work.
BOMB = gzip.compress(b'{"a":"%b"}' % (b"x" * OFFERED))
ERROR = text_of_error()


async def trailers() -> AsyncIterator[bytes]:
    yield HEAD % (b"200 OK", b"application/json", CHUNKED) + b"2\r\n{}\r\n0\r\n"
    for number in range(OFFERED // (64 * KIB)):
        yield b"X-Trailer-%d: %b\r\n" % (number, b"y" * 64 * KIB)


async def after_gzip() -> AsyncIterator[bytes]:
    body = gzip.compress(b'{"a":1}')
    yield HEAD % (b"200 OK", b"application/json", b"Content-Encoding: gzip\r\n") + body
    for _ in range(OFFERED // (64 * KIB)):
        yield bytes(64 * KIB)


async def long_line() -> AsyncIterator[bytes]:
    yield HEAD % (b"200 OK", b"text/event-stream", b"") + b"data: "
    for _ in range(OFFERED // (64 * KIB)):
        yield b"x" * 64 * KIB


async def bomb() -> AsyncIterator[bytes]:
    yield HEAD % (b"200 OK", b"application/json", b"Content-Encoding: gzip\r\n") + BOMB


async def error() -> AsyncIterator[bytes]:
    yield ERROR


ANSWERS: dict[bytes, Callable[[], AsyncIterator[bytes]]] = {
    b"trailers": trailers,
    b"after-gzip": after_gzip,
    b"long-line": long_line,
    b"bomb": bomb,
    b"error": error,
}


async def upstream(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """The answer that the model's name chooses."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    body = await reader.readexactly(length)
    answer = next((make for name, make in ANSWERS.items() if b'"%b"' % name in body), error)
    async for piece in answer():
        writer.write(piece)
        await writer.drain()


async def sink(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Read everything, and answer each head with a refusal."""
    seen = b""
    while piece := await reader.read(256 * KIB):
        heads = (seen + piece).count(b" HTTP/1.1\r\n")
        seen = piece[-10:] if not heads else b""
        for _ in range(heads):
            writer.write(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 2\r\n\r\n{}")
        await writer.drain()


async def serve(answer: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]) -> None:
    """Serve until the process is ended."""

    async def converse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (OSError, asyncio.IncompleteReadError, ValueError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(converse, "127.0.0.1", 0, limit=2**20, backlog=4096)
    print("listening", server.sockets[0].getsockname()[1], flush=True)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(upstream if sys.argv[1] == "upstream" else sink))
