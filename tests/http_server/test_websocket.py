"""A connection that has switched to WebSocket: its frames, its bounds, its times and its end, on both loops."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tornado.httputil import HTTPMessageDelegate, HTTPServerConnectionDelegate

from gateway.errors import Overloaded
from gateway.http_server.websocket import DEAD_AFTER, EVENTS_PER_TURN, PING_EVERY, WebSocket, handshake_headers
from tests.http_server.conftest import Client, Serve, Served
from tests.polling import until, until_still

pytestmark = pytest.mark.gen_test

TEXT, BINARY, CLOSE, PING, PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
HANDSHAKE = (
    b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)


class User:
    """Notes what it gets, and sends each message back."""

    def __init__(self) -> None:
        self.busy = False
        self.messages: list[bytes] = []
        self.grown = 0
        self.closed = 0
        self.room = 1 << 30
        self.socket: Any = None

    def on_growth(self, size: int) -> None:
        self.grown = size
        if size > self.room:
            raise Overloaded

    def on_message(self, text: bytes) -> None:
        self.messages.append(text)
        if not self.busy:
            self.socket.send(text)

    def on_close(self) -> None:
        self.closed += 1


class Switches(HTTPServerConnectionDelegate, HTTPMessageDelegate):
    """Switches each connection, with its own user."""

    def __init__(self) -> None:
        self.users: list[User] = []

    def start_request(self, server_conn: object, exchange: Any) -> HTTPMessageDelegate:
        self.exchange = exchange
        return self

    def headers_received(self, start_line: Any, headers: Any) -> None:
        self.headers = headers

    def finish(self) -> None:
        asyncio.get_running_loop().call_soon(self.switch, self.exchange)  # as a handler's task does

    def switch(self, exchange: Any) -> None:
        user = User()
        detached = exchange.switch(handshake_headers(self.headers))
        user.socket = WebSocket(detached, user, max_message=100_000, max_age=3600.0)
        self.users.append(user)
        user.socket.begin(detached)

    def on_close(self, server_conn: object) -> None:
        pass


def frame(kind: int, payload: bytes = b"", *, mask: bytes = b"\1\2\3\4") -> bytes:
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    else:
        length = bytes([0x80 | 126]) + size.to_bytes(2, "big") if size < 65_536 else b"\xff" + size.to_bytes(8, "big")
    return bytes([kind]) + length + mask + bytes(byte ^ mask[at % 4] for at, byte in enumerate(payload))


async def read(client: Client) -> tuple[int, bytes]:
    """The next frame of the server, which masks nothing."""
    kind, size = await client.reader.readexactly(2)
    if size >= 126:
        size = int.from_bytes(await client.reader.readexactly(2 if size == 126 else 8), "big")
    return kind, await client.reader.readexactly(size)


async def closed(client: Client) -> int:
    """The code of the close frame that comes next, after which the connection ends."""
    kind, payload = await read(client)
    assert kind == CLOSE, (kind, payload)
    assert await client.closed() == b""
    client.writer.close()
    return int.from_bytes(payload[:2], "big")


@asynccontextmanager
async def opened(serve: Serve, **limits: Any) -> AsyncIterator[tuple[Served, Client, User]]:
    app = Switches()
    served = await serve(app, **limits)
    async with served.client() as client:
        client.send(HANDSHAKE)
        status, headers = await client.read_headers()
        assert status == 101
        assert headers["Sec-WebSocket-Accept"] == "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        yield served, client, app.users[0]


def sweep(served: Served, seconds: float) -> None:
    """Let the server look at its connections as if so much time had passed."""
    for connection in list(served.server._connections):
        connection.sweep(served.server.state.now + seconds)


async def test_messages_pings_and_a_close_are_answered(serve: Serve) -> None:
    async with opened(serve) as (served, client, user):
        client.send(frame(TEXT, "Grüße".encode()))
        assert await read(client) == (TEXT, "Grüße".encode())
        client.send(frame(PING, b"here?"))
        assert await read(client) == (PONG, b"here?")
        client.send(frame(TEXT & 0x7F, b"a") + frame(PING) + frame(0x00, b"b") + frame(0x80, b"c"))
        assert await read(client) == (PONG, b"")
        assert await read(client) == (TEXT, b"abc")
        client.send(frame(CLOSE, (1000).to_bytes(2, "big")))
        assert await closed(client) == 1000
        assert await until(lambda: not served.server.connections)
        assert user.closed == 1


async def test_frames_that_come_with_the_handshake_are_read(serve: Serve) -> None:
    served = await serve(Switches())
    async with served.client() as client:
        client.send(HANDSHAKE + frame(TEXT, b"early"))
        await client.read_headers()
        assert await read(client) == (TEXT, b"early")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(BINARY, b"x"), 1003),
        (frame(TEXT, b"\xff\xfe"), 1007),
        (frame(TEXT, b"x" * 100_001), 1009),
        (frame(0x01, b"x" * 60_000) + frame(0x80, b"x" * 60_000), 1009),
        (bytes([TEXT, 0x7F]) + (1 << 40).to_bytes(8, "big"), 1002),  # not masked
        (bytes([TEXT, 1]) + b"x", 1002),
        (frame(0x83, b"x"), 1002),  # an unknown kind
        (frame(0xC1, b"x"), 1002),  # a reserved bit
        (frame(0x09, b""), 1002),  # a ping in parts
        (frame(PING, b"x" * 126), 1002),
        (frame(0x80, b"x"), 1002),  # the rest of nothing
        (frame(CLOSE, (1005).to_bytes(2, "big")), 1002),
    ],
)
async def test_invalid_frames_close_with_their_code(serve: Serve, data: bytes, code: int) -> None:
    async with opened(serve) as (served, client, user):
        client.send(data)
        assert await closed(client) == code
        assert await until(lambda: not served.server.connections)
        assert (user.messages, user.closed) == ([], 1)


async def test_message_without_room_is_refused_before_its_end(serve: Serve) -> None:
    async with opened(serve) as (_, client, user):
        user.room = 100
        client.send(frame(0x01, b"x" * 101))
        assert await closed(client) == 1013


async def test_open_for_an_hour_it_closes_when_it_is_idle(serve: Serve) -> None:
    async with opened(serve) as (served, client, user):
        user.socket.heard += 3600.0  # the client has answered its pings
        user.busy = True
        sweep(served, 3601.0)
        user.busy = False
        sweep(served, 3599.0)
        assert user.socket.is_open
        sweep(served, 3601.0)
        assert not user.socket.is_open
        while (received := await read(client))[0] == PING:
            pass
        assert received[0] == CLOSE and received[1][:2] == (1000).to_bytes(2, "big")


async def test_silent_client_gets_pings_and_is_cut_in_the_end(serve: Serve) -> None:
    async with opened(serve) as (served, client, user):
        sweep(served, PING_EVERY + 1)
        assert await read(client) == (PING, b"")
        sweep(served, DEAD_AFTER + 1)
        assert not user.socket.is_open
        assert await client.closed() == b""


@pytest.mark.parametrize("leave", ["fin", "half_close", "reset"])
async def test_client_that_leaves_is_noticed_at_once(serve: Serve, leave: str) -> None:
    async with opened(serve) as (served, client, user):
        user.busy = True
        if leave == "reset":
            client.reset()
        elif leave == "fin":
            client.writer.close()
        else:
            client.writer.write_eof()
        assert await until(lambda: user.closed)
        assert await until(lambda: not served.server.connections)


@pytest.mark.holds("operations/network.md#websocket-2")
async def test_server_that_stops_closes_idle_sockets_and_waits_for_answers(serve: Serve) -> None:
    app = Switches()
    served = await serve(app, header_timeout=0.08)
    async with served.client() as idle, served.client() as busy:
        for client in (idle, busy):
            client.send(HANDSHAKE)
            await client.read_headers()
        app.users[1].busy = True
        draining = asyncio.ensure_future(served.server.drain(20.0))
        assert await closed(idle) == 1001
        assert not draining.done()
        app.users[1].busy = False
        app.users[1].socket.answered()
        assert await closed(busy) == 1001
        await draining


async def test_client_that_does_not_read_is_not_read(serve: Serve) -> None:
    async with opened(serve, write_high_water=1024) as (_, client, user):
        sent = frame(TEXT, b"x" * 50_000)
        for _ in range(600):
            client.send(sent)
        held = await until_still(lambda: len(user.messages))
        assert held < 600
        for _ in range(600):
            assert len((await read(client))[1]) == 50_000


async def test_many_small_frames_are_read_in_turns(serve: Serve) -> None:
    async with opened(serve) as (_, client, user):
        user.busy = True  # nothing is sent back
        most, before, turns = 0, 0, 0

        async def watch() -> None:
            nonlocal most, before, turns
            while len(user.messages) < 20_000:
                await asyncio.sleep(0)
                most, before, turns = max(most, len(user.messages) - before), len(user.messages), turns + 1

        watching = asyncio.ensure_future(watch())
        client.send(frame(TEXT, b"") * 20_000)
        await watching
        assert most <= 2 * EVENTS_PER_TURN
        assert turns >= 20_000 / most


@pytest.mark.holds("operations/network.md#websocket-2")
async def test_idle_socket_makes_room_at_the_limit_of_connections(serve: Serve) -> None:
    app = Switches()
    served = await serve(app, max_connections=8)
    async with served.client() as first:
        first.send(HANDSHAKE)
        await first.read_headers()
        assert served.server.connections == 1
        user = app.users[0]
        clients = []
        for number in range(8):
            _, writer = await asyncio.open_connection(*served.address, local_addr=(f"127.0.0.{number + 2}", 0))
            clients.append(writer)
            await until(lambda: served.server.connections)
        assert await until(lambda: user.closed)
        for writer in clients:
            writer.close()
