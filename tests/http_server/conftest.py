"""A server under test and a client that speaks raw bytes, on asyncio's own loop and on uvloop."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest
import uvloop
from tornado.httputil import HTTPHeaders
from tornado.ioloop import IOLoop
from tornado.web import Application, RequestHandler

from gateway.http_server.client_address import Network
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.http_server.tls_state import TlsState
from tests.polling import until


class Answer(NamedTuple):
    status: int
    headers: HTTPHeaders
    body: bytes

    @property
    def error(self) -> dict[str, Any]:
        error: dict[str, Any] = msgspec.json.decode(self.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}
        return error


class Client:
    """One connection; `read` understands Content-Length, chunked and close-delimited bodies."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def ask(self, data: bytes) -> Answer:
        self.send(data)
        return await self.read(head=data.startswith(b"HEAD"))

    async def read(self, *, head: bool = False) -> Answer:
        status, headers = await self.read_headers()
        if head:
            return Answer(status, headers, b"")
        if headers.get("Transfer-Encoding") == "chunked":
            body = b"".join([chunk async for chunk in self.chunks()])
        elif "Content-Length" in headers:
            body = await self.reader.readexactly(int(headers["Content-Length"]))
        else:
            body = await self.reader.read()
        return Answer(status, headers, body)

    async def read_headers(self) -> tuple[int, HTTPHeaders]:
        block = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, _, rest = block.partition("\r\n")
        return int(line.split(" ")[1]), HTTPHeaders.parse(rest)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Body chunks up to the terminating one; IncompleteReadError when the body is cut."""
        while size := int((await self.reader.readuntil(b"\r\n"))[:-2], 16):
            yield (await self.reader.readexactly(size + 2))[:-2]
        await self.reader.readexactly(2)

    async def closed(self) -> bytes:
        """What still comes until the server closes."""
        return await self.reader.read()

    def reset(self) -> None:
        sock = self.writer.get_extra_info("socket")
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.writer.transport.abort()


class Served:
    """A running server and its address."""

    def __init__(self, server: HTTPServer, address: tuple[str, int]) -> None:
        self.server, self.address = server, address

    @asynccontextmanager
    async def client(self, source: str = "127.0.0.1", *, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
        """A connection from an address of the loopback."""
        reader, writer = await asyncio.open_connection(*self.address, local_addr=(source, 0), ssl=tls)
        try:
            yield Client(reader, writer)
        finally:
            writer.close()

    async def ask(self, data: bytes) -> Answer:
        async with self.client() as client:
            return await client.ask(data)


Serve = Callable[..., Awaitable[Served]]


@pytest.fixture(params=["asyncio", "uvloop"])
def io_loop(request: pytest.FixtureRequest) -> Iterator[IOLoop]:
    loop = uvloop.new_event_loop() if request.param == "uvloop" else asyncio.new_event_loop()
    io_loop = IOLoop(asyncio_loop=loop, make_current=False)  # else Tornado makes a third loop and leaks it
    asyncio.set_event_loop(loop)
    yield io_loop
    asyncio.set_event_loop(None)
    io_loop.close(all_fds=True)


@pytest.fixture
def serve(io_loop: IOLoop) -> Iterator[Serve]:
    servers: list[HTTPServer] = []

    async def start(
        handler: type[RequestHandler] | Any,
        *,
        on_full: Any = None,
        trusted: Any = tuple,
        tls: TlsState | None = None,
        preface_from: tuple[Network, ...] = (),
        **limits: Any,
    ) -> Served:
        app = Application([("/.*", handler)], log_function=lambda _: None) if isinstance(handler, type) else handler
        server = HTTPServer(
            app, ServerLimits(**limits), on_full=on_full, trusted=trusted, tls=tls, preface_from=preface_from
        )
        sock = socket.socket()
        sock.bind(("127.0.0.1", 0))
        await server.start(sock)
        servers.append(server)
        return Served(server, sock.getsockname())

    async def stop() -> None:
        for server in servers:
            server.close_listener()
            await server.drain(0.01)
            assert server.connections == 0

    yield start
    io_loop.run_sync(stop)


@pytest.fixture
def eventually() -> Callable[..., Awaitable[object]]:
    return until
