"""Money over sockets: whatever a client does to its socket, nothing stays held and each call is charged once."""

from __future__ import annotations

import json

import pytest

from gateway.accounts.accounts import Accounts
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from gateway.testing import FakeUpstream, Reply
from tests.api.conftest import Client, settled
from tests.api.endpoints.test_chat_stream import HELLO
from tests.api.sockets.conftest import opened
from tests.polling import until

TEN = 10 * 10**9
EVENTS = 10  # of the answer "Hello"
WHOLE = 21_000  # nano units: 17 tokens in, 2 out


@pytest.mark.parametrize("after", range(EVENTS + 1))
async def test_socket_that_is_cut_after_each_event_is_charged_once(
    client: Client, upstream: FakeUpstream, accounts: Accounts, after: int
) -> None:
    upstream.enqueue(Reply.stream(HELLO, interval=0.01 if after < EVENTS else 0.0))
    async with opened(client) as socket:
        await socket.send()
        for _ in range(after):
            await socket.event()
        if not after:
            await upstream.wait_started(0)
        connection = socket.wire._response.connection
        connection.transport.abort()
    account = await settled(accounts)
    charged = TEN - account.balance
    assert 0 <= charged <= WHOLE
    if after == EVENTS:
        assert charged == WHOLE
    seen = await upstream.wait_ended(0)
    assert seen.outcome == "answered" or after < EVENTS


async def test_message_that_is_cut_at_each_byte_is_no_call(
    client: Client, upstream: FakeUpstream, accounts: Accounts, http_server: HTTPServer
) -> None:
    text = json.dumps({"type": "response.create", "model": "m1", "input": "Hi"}).encode()
    frame = bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text
    for end in range(0, len(frame), 7):
        async with opened(client) as socket:
            socket.wire._writer.transport.write(frame[:end])
            socket.wire._response.connection.transport.close()
    assert await until(lambda: not http_server.connections)
    assert not upstream.seen
    assert (await settled(accounts)).balance == TEN


async def test_parts_of_a_large_message_count_as_bodies_until_the_socket_is_closed(
    client: Client, gateway: Gateway
) -> None:
    memory = gateway.bodies.memory
    async with opened(client) as socket:
        size = 300_000
        head = bytes([0x01, 0x80 | 127]) + size.to_bytes(8, "big") + bytes(4)
        socket.wire._writer.transport.write(head + b"x" * size)
        assert await until(lambda: memory.used_by("acme") >= size - 65_536)
    assert await until(lambda: memory.used == 0)


async def test_too_many_bytes_of_unfinished_messages_close_the_socket(client: Client, gateway: Gateway) -> None:
    gateway.bodies.resize(memory=(1 << 20, 1 << 18), disk=(1, 1))
    async with opened(client) as socket:
        size = 300_000
        head = bytes([0x01, 0x80 | 127]) + size.to_bytes(8, "big") + bytes(4)
        socket.wire._writer.transport.write(head + b"x" * size)
        assert await socket.closed() == 1013
    assert await until(lambda: gateway.bodies.memory.used == 0)
