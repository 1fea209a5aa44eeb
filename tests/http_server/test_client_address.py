"""The client's address behind proxies: X-Forwarded-For, and the PROXY protocol."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tornado.web import Application, RequestHandler

from gateway.http_server.client_address import client_address, networks
from gateway.http_server.limits import ServerLimits
from gateway.http_server.proxy_protocol import SIGNATURE, PrefaceError, read_preface
from gateway.http_server.server import HTTPServer
from tests.http_server.conftest import Client
from tests.polling import until

pytestmark = pytest.mark.usefixtures("io_loop")

TRUSTED = networks(("10.0.0.0/8", "127.0.0.1", "fd00::/8"))
REQUEST = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    ("peer", "forwarded_for", "client"),
    [
        ("203.0.113.9", "", "203.0.113.9"),
        ("203.0.113.9", "1.2.3.4", "203.0.113.9"),  # no trusted proxy wrote it
        ("10.0.0.1", "1.2.3.4", "1.2.3.4"),
        ("10.0.0.1", "6.6.6.6, 1.2.3.4", "1.2.3.4"),  # the client may have invented the first
        ("10.0.0.1", "6.6.6.6, 1.2.3.4, 10.9.9.9", "1.2.3.4"),
        ("10.0.0.1", "10.1.1.1,10.2.2.2", "10.1.1.1"),
        ("10.0.0.1", "1.2.3.4:5678", "1.2.3.4"),
        ("fd00::1", "[2001:db8::7]:443", "2001:db8::7"),
        ("::ffff:10.0.0.1", "2001:db8::7", "2001:db8::7"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "1.2.3.4, evil", "10.0.0.1"),
        ("10.0.0.1", ",".join(["10.3.3.3"] * 10_000), "10.3.3.3"),
        ("0.0.0.0", "1.2.3.4", "0.0.0.0"),
    ],
)
def test_client_is_the_last_address_that_no_trusted_proxy_has(peer: str, forwarded_for: str, client: str) -> None:
    assert client_address(peer, forwarded_for, TRUSTED) == client


def preface(address: str, *, command: int = 0x21, more: bytes = b"") -> bytes:
    """A PROXY v2 header for a client."""
    packed = ipaddress.ip_address(address).packed
    family = 0x11 if len(packed) == 4 else 0x21
    body = packed + packed + b"\x30\x39\x00\x50" + more
    return SIGNATURE + bytes([command, family]) + len(body).to_bytes(2, "big") + body


@pytest.mark.parametrize("address", ["198.51.100.7", "2001:db8::7"])
def test_preface_is_read_from_any_number_of_pieces(address: str) -> None:
    data = preface(address, more=b"\x04\x00\x01x")
    for size in range(len(data)):
        assert read_preface(data[:size]) is None
    assert read_preface(data + REQUEST) == (address, len(data))


def test_health_check_of_the_proxy_itself_has_no_client() -> None:
    data = preface("198.51.100.7", command=0x20)
    assert read_preface(data) == ("", len(data))


@pytest.mark.parametrize(
    "data",
    [
        REQUEST,
        b"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n",
        preface("198.51.100.7", command=0x31),
        SIGNATURE + b"\x21\x11\xff\xff",
        SIGNATURE + b"\x21\x11\x00\x04abcd",
    ],
)
def test_other_first_bytes_are_no_preface(data: bytes) -> None:
    with pytest.raises(PrefaceError):
        read_preface(data)


class Echo(RequestHandler):
    """Answers with the client's address and the body's size."""

    def get(self) -> None:
        self.finish(str(self.request.remote_ip))

    def post(self) -> None:
        self.finish(f"{self.request.remote_ip} {len(self.request.body)}")


@asynccontextmanager
async def served(*trusted: str, **limits: Any) -> AsyncIterator[tuple[str, int]]:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    app = Application([("/.*", Echo)], log_function=lambda _: None)
    server = HTTPServer(app, ServerLimits(**limits), preface_from=networks(trusted))
    await server.start(sock)
    try:
        yield sock.getsockname()
    finally:
        server.close_listener()
        await server.drain(0.01)


@asynccontextmanager
async def connected(address: tuple[str, int]) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(*address)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def test_requests_of_a_connection_have_the_client_of_its_preface() -> None:
    async with served("127.0.0.1") as address, connected(address) as client:
        first = await client.ask(preface("198.51.100.7") + REQUEST)
        assert first.body == b"198.51.100.7"
        assert (await client.ask(REQUEST)).body == b"198.51.100.7"
        body = b"x" * 200_000
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(body)
        assert (await client.ask(head + body)).body == b"198.51.100.7 200000"


async def test_preface_and_request_may_arrive_byte_by_byte() -> None:
    async with served("127.0.0.1") as address, connected(address) as client:
        data = preface("2001:db8::7") + REQUEST
        for at in range(len(data)):
            client.send(data[at : at + 1])
            await client.writer.drain()
            await asyncio.sleep(0)
        assert (await client.read()).body == b"2001:db8::7"


async def test_request_larger_than_the_prefaces_buffer_follows_in_one_piece() -> None:
    async with served("127.0.0.1") as address, connected(address) as client:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 30000\r\n\r\n"
        assert (await client.ask(preface("198.51.100.7") + head + b"x" * 30_000)).body == b"198.51.100.7 30000"


async def test_health_check_keeps_the_proxys_own_address() -> None:
    async with served("127.0.0.1") as address, connected(address) as client:
        assert (await client.ask(preface("198.51.100.7", command=0x20) + REQUEST)).body == b"127.0.0.1"


@pytest.mark.parametrize(
    ("trusted", "data"), [("127.0.0.1", REQUEST), ("10.0.0.0/8", preface("198.51.100.7") + REQUEST)]
)
async def test_connection_without_a_preface_of_a_trusted_proxy_is_closed_and_logged(
    trusted: str, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(trusted) as address, connected(address) as client:
        client.send(data)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await client.read()
        assert "server.proxy_protocol" in caplog.text


async def test_connection_whose_preface_is_late_is_closed() -> None:
    async with served("127.0.0.1", header_timeout=0.05) as address, connected(address) as client:
        client.send(SIGNATURE)

        async def closed() -> bool:
            try:
                return await asyncio.wait_for(client.reader.read(1), 30) == b""
            except ConnectionError:
                return True

        assert await closed()
        await until(lambda: client.reader.at_eof() or client.reader.exception() is not None)
