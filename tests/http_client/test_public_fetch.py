"""Fetching by address: public hosts over https only, whatever a name, a redirect or an answer tries."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.http_client import public_fetch
from gateway.http_client.public_fetch import FetchFailed, PublicClient, is_public

CERTIFICATES = Path(__file__).parents[1] / "certificates"
MOST = 100_000

Answer = Callable[[str], bytes]  # from the path


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0", "224.0.0.1",
        "255.255.255.255", "198.18.0.1", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "fec0::1", "ff02::1",
        "2001:db8::1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1",
    ],
)  # fmt: skip
def test_address_that_is_not_of_the_public_internet_is_found_out(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "1.1.1.1", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_address_of_the_public_internet_passes(address: str) -> None:
    assert is_public(address)


@asynccontextmanager
async def tls_server(answer: Answer) -> AsyncIterator[tuple[int, list[str]]]:
    """A TLS server on loopback, its port, and the paths that were asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    seen: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        seen.append(head.split(" ")[1])
        try:
            writer.write(answer(seen[-1]))
            await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1], seen


@pytest.fixture
def loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loopback passes for the internet, so that a server of the test is reached."""
    monkeypatch.setattr(public_fetch, "is_public", lambda address: address == "127.0.0.1")
    monkeypatch.setattr(public_fetch, "PORTS", range(1, 65_536))


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=CERTIFICATES / "localhost.pem")


async def fetched(url: str) -> bytes:
    async with PublicClient(trusting()) as client:
        return await client.get(url, most=MOST)


def whole(body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n{headers}\r\n".encode() + body


async def test_content_of_a_public_server_is_fetched(loopback_is_public: None) -> None:
    async with tls_server(lambda path: whole(b"x" * MOST)) as (port, seen):
        assert await fetched(f"https://localhost:{port}/cat.png?a=1") == b"x" * MOST
    assert seen == ["/cat.png?a=1"]


async def test_redirect_to_another_public_address_is_followed(loopback_is_public: None) -> None:
    def answer(path: str) -> bytes:
        return whole(b"here") if path == "/there" else b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n"

    async with tls_server(answer) as (port, _):
        assert await fetched(f"https://localhost:{port}/") == b"here"


@pytest.mark.parametrize(
    "target",
    [
        "https://10.0.0.1/", "https://[::1]/", "http://localhost/", "https://user:secret@localhost/", "ftp://localhost/",
        "https://169.254.169.254/latest/meta-data", "file:///etc/passwd", "https://[fe80::1]/", "https://2130706434/",
    ],
)  # fmt: skip
async def test_redirect_to_a_private_address_is_not_followed(loopback_is_public: None, target: str) -> None:
    async with tls_server(lambda path: f"HTTP/1.1 302 Found\r\nLocation: {target}\r\n\r\n".encode()) as (port, seen):
        with pytest.raises(FetchFailed):
            await fetched(f"https://localhost:{port}/")
    assert len(seen) == 1


async def test_redirects_without_an_end_are_given_up(loopback_is_public: None) -> None:
    async with tls_server(lambda path: f"HTTP/1.1 302 Found\r\nLocation: {path}x\r\n\r\n".encode()) as (port, seen):
        with pytest.raises(FetchFailed, match="redirects more than 3 times"):
            await fetched(f"https://localhost:{port}/")
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (whole(b"x" * (MOST + 1)), "larger than 100000 bytes"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MOST + 1), "larger than 100000 bytes"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999999\r\n\r\n", "larger than 100000 bytes"),
        (whole(b""), "empty"),
        (whole(b"x", "Content-Encoding: gzip\r\n"), "compressed"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", "answered 404"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nx", "no answer could be read"),
        (b"nonsense\r\n\r\n", "no answer could be read"),
        (b"", "no answer could be read"),
    ],
)
async def test_answer_that_is_no_bounded_content_is_refused(
    loopback_is_public: None, answer: bytes, message: str
) -> None:
    async with tls_server(lambda path: answer) as (port, _):
        with pytest.raises(FetchFailed, match=message):
            await fetched(f"https://localhost:{port}/")


async def test_server_that_never_ends_its_answer_is_given_up(
    loopback_is_public: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_fetch, "WITHIN", 0.5)
    ended = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\n\r\nx")
        await reader.read()
        ended.set()
        writer.close()

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / "localhost.pem", CERTIFICATES / "localhost.key")
    async with await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        with pytest.raises(FetchFailed, match="longer than"):
            await fetched(f"https://localhost:{port}/")
        await asyncio.wait_for(ended.wait(), 60)


@pytest.mark.parametrize(
    "url",
    [
        "http://example.com/", "https://127.0.0.1/", "https://[::1]/", "https://localhost/", "https://127.1/",
        "https://0x7f000001/", "https://2130706433/", "https://example.com:22/", "https://u:p@example.com/",
        "https:///x", "https://[::ffff:127.0.0.1]/", "https://[64:ff9b::7f00:1]/", "data:image/png;base64,AA",
        "https://[bad/", "https://example.com:99999/", "https://169.254.169.254/",
    ],
)  # fmt: skip
async def test_address_that_is_private_or_no_https_address_is_refused(url: str) -> None:
    with pytest.raises(FetchFailed):
        await fetched(url)


async def test_name_with_one_private_address_is_refused_and_no_connection_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connected: list[Any] = []
    monkeypatch.setattr(asyncio.get_running_loop(), "sock_connect", lambda *address: connected.append(address))

    async def resolve(self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        plain = {"hostname": host, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
        return [{**plain, "host": "8.8.8.8"}, {**plain, "host": "10.0.0.1"}]

    monkeypatch.setattr("aiohttp.resolver.ThreadedResolver.resolve", resolve)
    with pytest.raises(FetchFailed, match="no public address"):
        await fetched("https://rebinding.example/")
    assert not connected


async def test_name_is_resolved_once_so_that_a_second_answer_changes_nothing(
    loopback_is_public: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    async def resolve(self: object, host: str, port: int = 0, family: int = 0) -> list[dict[str, Any]]:
        asked.append(host)
        address = "127.0.0.1" if len(asked) == 1 else "127.0.0.2"
        return [{"hostname": host, "host": address, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}]

    monkeypatch.setattr("aiohttp.resolver.ThreadedResolver.resolve", resolve)
    async with tls_server(lambda path: whole(b"once")) as (port, _):
        assert await fetched(f"https://localhost:{port}/") == b"once"
    assert asked == ["localhost"]
