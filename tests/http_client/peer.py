"""A server on loopback that does exactly what a test says, byte by byte."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import Awaitable, Callable

from tests.polling import at_once, turns

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


class Line:
    """One connection as the peer sees it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.requests: list[bytes] = []
        self.ended = asyncio.Event()  # the other side has closed

    async def request(self) -> bytes:
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = next((int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length")), 0)
        self.requests.append(head + await self.reader.readexactly(length))
        return self.requests[-1]

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.writer.transport.abort()


Behaviour = Callable[[Line], Awaitable[None]]


class Peer:
    """A server by script: `behave` is run for each connection, and what it leaves open is closed at the end."""

    def __init__(self, behave: Behaviour, tls: ssl.SSLContext | None = None) -> None:
        self.lines: list[Line] = []
        self.url = ""
        self._behave = behave
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Peer:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", 0, ssl=self._tls, limit=1 << 20, backlog=512
        )
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"{'https' if self._tls else 'http'}://localhost:{port}/path?q=1"
        return self

    async def __aexit__(self, *_: object) -> None:
        await turns()  # connections that are being accepted get their task
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in self.lines:
            line.writer.transport.abort()
        await turns()  # transports are closed in the next turns of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = Line(reader, writer)
        self.lines.append(line)
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            await self._behave(line)
            while await reader.read(65536):
                pass
        line.ended.set()


def each(*answers: bytes) -> Behaviour:
    """Answer the requests of a connection with these."""

    async def behave(line: Line) -> None:
        for answer in answers:
            await line.request()
            await line.send(answer)

    return behave


async def always_ok(line: Line) -> None:
    while True:
        await line.request()
        await line.send(OK)


async def assert_closed(line: Line, *, within: float = 5.0) -> None:
    """Wait until the other side has closed the connection, for so many seconds of the event loop's time at most."""
    async with asyncio.timeout(30), at_once(within=within):
        await line.ended.wait()


async def assert_closed_at_once(line: Line) -> None:
    await assert_closed(line, within=0.25)
