"""Requests through a forward proxy, on real sockets: what the proxy sees, what the upstream sees, what goes wrong."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest
import trustme

from gateway.config.proxy import ProxySetting
from gateway.errors import (
    GatewayError,
    InvalidValue,
    UpstreamAuthError,
    UpstreamInvalidResponse,
    UpstreamTimeout,
    UpstreamTruncated,
    UpstreamUnreachable,
)
from gateway.http_client.multipart import Multipart
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Upstream
from tests.delays import forever
from tests.http_client.forward_proxy import ForwardProxy
from tests.http_client.loops import io_loop, loop_kind  # noqa: F401 - fixtures
from tests.http_client.peer import CHUNKED, OK, Line, Peer, always_ok, assert_closed_at_once, each
from tests.leftovers import garbage
from tests.polling import at_once, turns, until, until_still

CREDENTIALS = "gate:canary-word"
KEY = {"Authorization": "Bearer canary-key"}
SCHEMES = ["http", "https"]


class Certificates:
    """A certificate authority of the test's own."""

    def __init__(self) -> None:
        authority = trustme.CA()
        self.server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        authority.issue_cert("localhost", "127.0.0.1").configure_cert(self.server)
        self.trusting = ssl.create_default_context()
        authority.configure_trust(self.trusting)


@pytest.fixture(scope="module")
def certificates() -> Certificates:
    return Certificates()


@pytest.fixture(params=SCHEMES)
def tls(request: pytest.FixtureRequest, certificates: Certificates) -> ssl.SSLContext | None:
    """The upstream's: with it requests go through a tunnel, without it in the absolute form."""
    return certificates.server if request.param == "https" else None


@pytest.fixture(autouse=True)
def no_proxies_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@contextlib.asynccontextmanager
async def whole(certificates: Certificates, *, keepalive: float = 15.0) -> AsyncIterator[Upstream]:
    """A client that trusts the test's certificates."""
    link = Upstream(tls=certificates.trusting, keepalive=keepalive)
    try:
        yield link
    finally:
        await link.close()


@contextlib.asynccontextmanager
async def through(
    proxy: ForwardProxy | str, certificates: Certificates, credentials: str = ""
) -> AsyncIterator[Upstream]:
    """A view of such a client whose requests take this proxy."""
    url = proxy if isinstance(proxy, str) else proxy.url
    async with whole(certificates) as link:
        setting = ProxySetting.parse(url.replace("://", f"://{credentials}@") if credentials else url, literals=True)
        yield link.view(proxies=setting.resolve())


async def fetch(link: Upstream, url: str, method: str = "POST") -> bytes:
    async with await link.send(method, url, headers=KEY, body=b"{}" if method == "POST" else None) as answer:
        return await answer.read()


def shown(error: GatewayError) -> str:
    """All that a caller or a log could see of an error."""
    return f"{error!r} {error} {error.message} {error.detail} {error.body().decode()} {error.__cause__!r}"


# What goes where -----------------------------------------------------------------------------------------------------


async def test_tls_upstream_is_reached_by_a_tunnel_that_is_kept(certificates: Certificates) -> None:
    async with (
        ForwardProxy(credentials=CREDENTIALS) as proxy,
        Peer(always_ok, certificates.server) as peer,
        through(proxy, certificates, CREDENTIALS) as link,
    ):
        assert [await fetch(link, peer.url) for _ in range(3)] == [b"ok"] * 3
        [head] = proxy.heads
        place = peer.url.removeprefix("https://").partition("/")[0]
        assert head.startswith(f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n".encode())
        assert b"canary-key" not in head
        [line] = peer.lines
        assert line.requests[2].startswith(f"POST /path?q=1 HTTP/1.1\r\nHost: {place}\r\n".encode())
        assert b"proxy-authorization" not in b"".join(line.requests).lower()


async def test_plain_upstream_is_reached_by_the_absolute_form_with_credentials_in_every_request(
    certificates: Certificates,
) -> None:
    async with (
        ForwardProxy(credentials=CREDENTIALS) as proxy,
        Peer(always_ok) as peer,
        through(proxy, certificates, CREDENTIALS) as link,
    ):
        assert [await fetch(link, peer.url) for _ in range(3)] == [b"ok"] * 3
        assert [head.partition(b"\r\n")[0].decode() for head in proxy.heads] == [f"POST {peer.url} HTTP/1.1"] * 3
        assert (proxy.connections, len(peer.lines)) == (1, 1)
        assert b"proxy-authorization" not in b"".join(peer.lines[0].requests).lower()


async def pieces(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def form() -> Multipart:
    return Multipart().field("model", "m").file("file", b"sound", filename="a.wav", content_type="audio/wav")


REQUESTS = {
    "GET": ("GET", "/v1/models", {}, lambda: None),
    "POST without a body": ("POST", "/v1/x", {}, lambda: None),
    "POST": ("POST", "/v1/x?a=b%20c&d=%C3%A9", {"Content-Type": "application/json"}, lambda: b'{"a": 1}'),
    "large": ("POST", "/v1/x", {}, lambda: bytes(3 << 20)),
    "quoted path": ("POST", "/model/anthropic.claude%3A0/converse", {}, lambda: b"{}"),
    "own Host, User-Agent and length": ("POST", "/", {"Host": "h", "user-agent": "u", "Content-Length": "9"}, bytes),
    "not ASCII": ("POST", "/", {"X-Title": "é"}, lambda: b"{}"),
    "chunked": ("POST", "/v1/x", {}, lambda: pieces(b"a", b"", b"bc")),
    "streamed": ("PUT", "/v1/x", {"Content-Length": "3"}, lambda: pieces(b"a", b"bc")),
}


@pytest.mark.parametrize("name", REQUESTS)
async def test_upstream_is_sent_the_same_with_and_without_a_proxy(
    name: str, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    method, path, headers, body = REQUESTS[name]
    received: list[bytes] = []

    async def behave(line: Line) -> None:
        head = await line.reader.readuntil(b"\r\n\r\n")
        rest = b""
        if b"Transfer-Encoding" in head:
            rest = await line.reader.readuntil(b"0\r\n\r\n")
        elif b"Content-Length: " in head:
            rest = await line.reader.readexactly(int(head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]))
        received.append(head + rest)
        await line.send(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))

    async with (
        ForwardProxy() as proxy,
        Peer(behave, tls) as peer,
        whole(certificates) as direct,
        through(proxy, certificates) as proxied,
    ):
        url = peer.url.replace("/path?q=1", path)
        for link in (direct, proxied):
            async with await link.send(method, url, headers=headers, body=body()) as answer:
                assert await answer.read() == b"ok"
        assert proxy.connections == 1
    first, second = (message.partition(b"\r\n\r\n") for message in received)
    assert first[0].split(b"\r\n")[0] == second[0].split(b"\r\n")[0]
    assert sorted(first[0].split(b"\r\n")) == sorted(second[0].split(b"\r\n"))
    assert first[2] == second[2]


async def test_form_with_a_file_arrives_complete(certificates: Certificates, tls: ssl.SSLContext | None) -> None:
    async with ForwardProxy() as proxy, Peer(always_ok, tls) as peer, through(proxy, certificates) as link:
        async with await link.send("POST", peer.url, body=form()) as answer:
            assert await answer.read() == b"ok"
        [message] = peer.lines[0].requests
        assert b"Content-Length: " in message
        assert b"sound" in message


@pytest.mark.holds("operations/network.md#http-proxies-2")
async def test_proxy_reached_by_tls_serves_plain_and_tls_upstreams(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async with (
        ForwardProxy(credentials=CREDENTIALS, tls=certificates.server) as proxy,
        Peer(always_ok, tls) as peer,
        through(proxy, certificates, CREDENTIALS) as link,
    ):
        assert [await fetch(link, peer.url) for _ in range(2)] == [b"ok"] * 2
        assert proxy.connections == 1


async def test_only_the_proxied_view_of_the_client_uses_the_proxy(certificates: Certificates) -> None:
    async with ForwardProxy() as proxy, Peer(always_ok) as peer, whole(certificates) as link:
        view = link.view(proxies=ProxySetting.parse(proxy.url).resolve())
        assert await fetch(link, peer.url) == b"ok"
        assert proxy.connections == 0
        assert await fetch(view, peer.url) == b"ok"
        assert proxy.connections == 1
        await view.close()  # it has no connections of its own
        assert await fetch(view, peer.url) == b"ok"
        assert proxy.connections == 1


async def test_environment_sets_proxies_by_scheme_and_hosts_without_a_proxy(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with (
        ForwardProxy() as proxy,
        Peer(always_ok, certificates.server) as secure,
        Peer(always_ok) as plain,
        whole(certificates) as link,
    ):
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)
        view = link.view(proxies=ProxySetting.parse("env").resolve())
        assert (await fetch(view, secure.url), await fetch(view, plain.url)) == (b"ok", b"ok")
        assert [head.split(b" ")[0] for head in proxy.heads] == [b"CONNECT"]
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("NO_PROXY", "example.com,localhost")
        around = link.view(proxies=ProxySetting.parse("env").resolve())
        assert (await fetch(around, secure.url), await fetch(around, plain.url)) == (b"ok", b"ok")
        assert proxy.connections == 1
        assert await fetch(around, plain.url.replace("localhost", "127.0.0.1")) == b"ok"
        assert proxy.connections == 2


# Proxies that do not serve -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("credentials", ["", "gate:canary-wrong"])
async def test_proxy_that_refuses_the_credentials_is_an_authentication_error(
    credentials: str, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async with (
        ForwardProxy(credentials=CREDENTIALS) as proxy,
        Peer(always_ok, tls) as peer,
        through(proxy, certificates, credentials) as link,
    ):
        with pytest.raises(UpstreamAuthError) as caught:
            await fetch(link, peer.url)
        error = caught.value
        assert (error.status, error.code, error.retryable) == (502, "upstream_auth_error", True)
        assert error.message == "The gateway's credential was refused on the way to the model provider"
        assert error.detail == "the proxy refused the gateway's credentials (407)"
        text = shown(error)
        assert not any(word in text for word in (proxy.address, "localhost", "canary"))
        assert peer.lines == []


async def test_status_407_of_an_upstream_behind_a_tunnel_is_an_answer(certificates: Certificates) -> None:
    answer = b"HTTP/1.1 407 Odd\r\nContent-Length: 0\r\n\r\n"
    async with (
        ForwardProxy() as proxy,
        Peer(each(answer), certificates.server) as peer,
        through(proxy, certificates) as link,
        await link.send("POST", peer.url, body=b"{}") as seen,
    ):
        assert seen.status == 407


@pytest.mark.parametrize("status", [403, 502, 504])
async def test_tunnel_that_the_proxy_does_not_open_is_unreachable(status: int, certificates: Certificates) -> None:
    async with (
        ForwardProxy() as proxy,
        Peer(always_ok, certificates.server) as peer,
        through(proxy, certificates) as link,
    ):
        proxy.refuse = status
        with pytest.raises(UpstreamUnreachable) as caught:
            await fetch(link, peer.url)
        assert caught.value.detail == f"the proxy answered CONNECT with {status}"
        assert proxy.address not in shown(caught.value)
        assert peer.lines == []


PROXIES_DOWN = [
    ("http://127.0.0.1:1", "no connection to the proxy: Connection refused"),
    ("https://127.0.0.1:1", "no connection to the proxy: Connection refused"),
    ("http://nowhere.invalid:3128", "no connection to the proxy: "),
]


@pytest.mark.parametrize(("proxy", "detail"), PROXIES_DOWN)
async def test_proxy_that_is_down_is_a_failed_connection_before_anything_was_sent(
    proxy: str, detail: str, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async with Peer(always_ok, tls) as peer, through(proxy, certificates) as link:
        source = pieces(b"a")
        with pytest.raises(UpstreamUnreachable) as caught:
            await link.send("POST", peer.url, body=source)
        error = caught.value
        assert (error.retryable, error.message) == (True, "The model provider could not be reached")
        assert (error.detail or "").startswith(detail)
        assert not any(word in shown(error) for word in ("127.0.0.1", "nowhere", "3128"))
        assert peer.lines == []
        assert [piece async for piece in source] == [b"a"]  # it was not read before


async def test_proxy_without_a_trusted_certificate_is_unreachable(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    stranger = Certificates()
    async with (
        ForwardProxy(tls=stranger.server) as proxy,
        Peer(always_ok, tls) as peer,
        through(proxy, certificates) as link,
    ):
        with pytest.raises(UpstreamUnreachable) as caught:
            await fetch(link, peer.url)
        assert caught.value.detail == "no TLS with the proxy or the upstream: CERTIFICATE_VERIFY_FAILED"
        assert proxy.heads == []


async def test_upstream_without_a_trusted_certificate_is_unreachable(certificates: Certificates) -> None:
    stranger = Certificates()
    async with ForwardProxy() as proxy, Peer(always_ok, stranger.server) as peer, through(proxy, certificates) as link:
        with pytest.raises(UpstreamUnreachable) as caught:
            await fetch(link, peer.url)
        assert caught.value.detail == "no TLS with the proxy or the upstream: CERTIFICATE_VERIFY_FAILED"
        await until(lambda: proxy.open == 0)


@pytest.mark.holds("operations/network.md#http-proxies-6")
async def test_proxy_that_opens_no_tunnel_in_time_hits_the_connect_timeout(certificates: Certificates) -> None:
    async with (
        ForwardProxy() as proxy,
        Peer(always_ok, certificates.server) as peer,
        through(proxy, certificates) as link,
    ):
        proxy.black_hole = True
        started = time.monotonic()
        async with at_once(within=1.5):
            with pytest.raises(UpstreamTimeout) as caught:
                await link.send("POST", peer.url, body=b"{}", timeouts=Timeouts(connect=0.2))
        assert time.monotonic() - started > 0.15
        assert proxy.address not in shown(caught.value)
        await until(lambda: proxy.open == 0)


@pytest.mark.holds("operations/network.md#http-proxies-6")
async def test_proxy_that_forwards_no_answer_hits_the_first_byte_timeout(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async with ForwardProxy() as proxy, Peer(each(), tls) as peer, through(proxy, certificates) as link:
        started = time.monotonic()
        async with at_once(within=1.5):
            with pytest.raises(UpstreamTimeout):
                await link.send("POST", peer.url, body=b"{}", timeouts=Timeouts(first_byte=0.3))
        assert time.monotonic() - started > 0.25
        await until(lambda: proxy.open == 0)


async def test_proxy_that_disconnects_or_sends_no_http_is_an_upstream_error(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    place = "https://localhost:1/" if tls else "http://localhost:1/"
    for raw, kind in ((b"", UpstreamUnreachable), (b"SSH-2.0\r\n\r\n", UpstreamInvalidResponse)):
        async with Peer(each(raw)) as proxy:
            proxy.lines.clear()

            async with through(proxy.url.removesuffix("/path?q=1"), certificates) as link:
                sending = asyncio.create_task(fetch(link, place))
                line = await until(lambda proxy=proxy: next((line for line in proxy.lines if line.requests), None))
                if not raw:
                    line.writer.close()
                with pytest.raises(kind) as caught:
                    await sending
                assert "localhost" not in shown(caught.value)


# Answers -------------------------------------------------------------------------------------------------------------


async def test_events_arrive_one_by_one_as_they_are_sent(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    read = asyncio.Queue[bytes]()

    async def behave(line: Line) -> None:
        await line.request()
        await line.send(CHUNKED)
        for number in range(5):
            await line.send(b"9\r\ndata: %d\n\n\r\n" % number)
            assert await asyncio.wait_for(read.get(), 30) == b"%d" % number
        await line.send(b"0\r\n\r\n")

    async with ForwardProxy() as proxy, Peer(behave, tls) as peer, through(proxy, certificates) as link:
        async with await link.send("POST", peer.url, body=b"{}") as answer:
            async for event in answer.events():
                read.put_nowait(event.data)
        assert read.empty()


async def test_answer_of_any_coding_and_with_large_headers_is_read(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    body = gzip.compress(b"through")
    long = b"HTTP/1.1 200 OK\r\nX-Policy: %b\r\nContent-Encoding: %b\r\nContent-Length: %d\r\n\r\n%b"
    answers = [long % (b"x" * 60_000, coding, len(body), body) for coding in (b"gzip", b"Identity")]
    async with ForwardProxy() as proxy, Peer(each(*answers), tls) as peer, through(proxy, certificates) as link:
        assert await fetch(link, peer.url) == b"through"
        assert await fetch(link, peer.url) == body


async def test_silent_upstream_times_out_and_its_connection_is_closed(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    script = each(CHUNKED + b"1\r\na\r\n")
    async with ForwardProxy() as proxy, Peer(script, tls) as peer, through(proxy, certificates) as link:
        answer = await link.send("POST", peer.url, body=b"{}", timeouts=Timeouts(idle=0.2))
        assert await answer.read_chunk() == b"a"
        with pytest.raises(UpstreamTimeout):
            await answer.read_chunk()
        await assert_closed_at_once(peer.lines[0])
        await until(lambda: proxy.open == 0)


async def test_answer_that_is_cut_is_truncated(certificates: Certificates, tls: ssl.SSLContext | None) -> None:
    script = each(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\na")
    async with ForwardProxy() as proxy, Peer(script, tls) as peer, through(proxy, certificates) as link:
        answer = await link.send("POST", peer.url, body=b"{}")
        assert await answer.read_chunk() == b"a"
        peer.lines[0].writer.close()
        with pytest.raises(UpstreamTruncated):
            await answer.read_chunk()


@pytest.mark.parametrize(
    "raw", [b"SSH-2.0\r\n\r\n", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"]
)
async def test_answer_that_is_not_http_is_invalid(
    raw: bytes, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async with ForwardProxy() as proxy, Peer(each(raw), tls) as peer, through(proxy, certificates) as link:
        with pytest.raises(UpstreamInvalidResponse):
            await fetch(link, peer.url)
        await until(lambda: proxy.open == 0)


@pytest.mark.parametrize("way", ["close", "cancel"])
async def test_closing_an_answer_closes_its_connection_at_once(
    way: str, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    script = each(CHUNKED + b"1\r\na\r\n" if way == "close" else b"")
    async with ForwardProxy() as proxy, Peer(script, tls) as peer, through(proxy, certificates) as link:
        sending = asyncio.create_task(link.send("POST", peer.url, body=b"{}"))
        await until(lambda: peer.lines and peer.lines[0].requests)
        if way == "close":
            (await sending).close()
        else:
            sending.cancel()
        await assert_closed_at_once(peer.lines[0])
        await until(lambda: proxy.open == 0)


async def test_reader_that_pauses_stops_the_server_and_loses_nothing(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    total, sent = 64 << 20, 0

    async def behave(line: Line) -> None:
        nonlocal sent
        await line.request()
        await line.send(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        for _ in range(total >> 16):
            await line.send(bytes(1 << 16))
            sent += 1 << 16

    async with ForwardProxy() as proxy, Peer(behave, tls) as peer, through(proxy, certificates) as link:
        answer = await link.send("POST", peer.url, body=b"{}")
        received = len(await answer.read_chunk())
        assert await until_still(lambda: sent) < total // 2
        while chunk := await answer.read_chunk():
            received += len(chunk)
        assert received == total


async def test_closing_the_client_cuts_the_answers_under_way(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    script = each(OK, CHUNKED + b"1\r\na\r\n")
    async with ForwardProxy() as proxy, Peer(script, tls) as peer, whole(certificates) as link:
        view = link.view(proxies=ProxySetting.parse(proxy.url).resolve())
        await fetch(view, peer.url)
        answer = await view.send("POST", peer.url, body=b"{}")
        assert await answer.read_chunk() == b"a"
        await link.close()
        with pytest.raises(UpstreamTruncated):
            await asyncio.wait_for(answer.read(), 30)
        await until(lambda: proxy.open == 0)


# Kept connections ----------------------------------------------------------------------------------------------------


async def test_answer_without_a_request_never_reaches_the_next_caller(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async with ForwardProxy() as proxy, Peer(always_ok, tls) as peer, through(proxy, certificates) as link:
        assert await fetch(link, peer.url) == b"ok"
        await peer.lines[0].send(OK.replace(b"ok", b"no"))
        idle = link._proxy_client()._session.connector._conns  # type: ignore[union-attr]
        await until(lambda: any(protocol.should_close for kept in idle.values() for protocol, _ in kept))
        assert await fetch(link, peer.url) == b"ok"
        assert len(peer.lines) == 2


@pytest.mark.parametrize("method", ["POST", "GET"])
async def test_request_on_a_connection_that_breaks_is_not_sent_again(
    method: str, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async def behave(line: Line) -> None:
        await line.request()
        await line.send(OK)
        await line.request()
        line.writer.close()

    async with ForwardProxy() as proxy, Peer(behave, tls) as peer, through(proxy, certificates) as link:
        await fetch(link, peer.url, method)
        with pytest.raises(UpstreamUnreachable):
            await fetch(link, peer.url, method)
        assert len(peer.lines) == 1


# Uploads -------------------------------------------------------------------------------------------------------------


class Source:
    """Pieces of a request body without end."""

    def __init__(self, size: int = 65536) -> None:
        self.closed = False
        self.produced = 0
        self.stream = self._generate(size)

    async def _generate(self, size: int) -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                self.produced += size
                yield bytes(size)
        finally:
            self.closed = True


async def test_upstream_that_stops_reading_an_upload_times_out_and_the_source_is_closed(
    certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async def behave(line: Line) -> None:
        await line.request()
        await line.send(OK)
        await forever()

    async with ForwardProxy() as proxy, Peer(behave, tls) as peer, through(proxy, certificates) as link:
        await fetch(link, peer.url)  # on a kept connection the upload begins before the time limit
        source = Source()
        with pytest.raises(UpstreamTimeout):
            await link.send("POST", peer.url, body=source.stream, timeouts=Timeouts(first_byte=0.3))
        await until(lambda: source.closed)


async def test_cancelled_upload_closes_its_source(certificates: Certificates, tls: ssl.SSLContext | None) -> None:
    async with ForwardProxy() as proxy, Peer(each(), tls) as peer, through(proxy, certificates) as link:
        source = Source(10)
        sending = asyncio.create_task(link.send("POST", peer.url, body=source.stream))
        await until(lambda: source.produced and peer.lines)
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        await until(lambda: source.closed)


async def test_half_sent_request_is_dropped_and_not_flushed(certificates: Certificates) -> None:
    """A proxy that stalls would otherwise hold the socket for as long as it likes."""
    with socket.create_server(("127.0.0.1", 0)) as stalled:
        stalled.setblocking(False)
        loop = asyncio.get_running_loop()
        async with through(f"http://127.0.0.1:{stalled.getsockname()[1]}", certificates) as link:
            sending = asyncio.create_task(link.send("POST", "http://upstream.invalid/", body=bytes(64 << 20)))
            connection, (_, port) = await loop.sock_accept(stalled)
            with connection:
                await until(lambda: unsent(port))
                sending.cancel()
                assert await until(lambda: not is_open(port))


def is_open(port: int) -> bool:
    """Whether a socket with this local port still belongs to a process."""
    return any(row[9] != "0" for row in sockets_at(port))


def unsent(port: int) -> int:
    """Bytes that the kernel holds for the peer of a local port."""
    return sum(int(row[4].partition(":")[0], 16) for row in sockets_at(port))


def sockets_at(port: int) -> list[list[str]]:
    """Rows of the kernel's table: 4 has the queues, 9 the inode, which is 0 once the socket was closed."""
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return [row for row in rows if int(row[1].partition(":")[2], 16) == port]


@pytest.mark.parametrize("length", [2, 4])
async def test_upload_with_a_wrong_announced_length_is_cut(
    length: int, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async with ForwardProxy() as proxy, Peer(always_ok, tls) as peer, through(proxy, certificates) as link:
        with pytest.raises(ValueError, match="Content-Length"):
            await link.send("POST", peer.url, headers={"Content-Length": str(length)}, body=pieces(b"a", b"bc"))
        await until(lambda: proxy.open == 0)
        assert not any(line.requests for line in peer.lines)  # none that was whole


@pytest.mark.parametrize("error", [InvalidValue("the form is broken", param="file"), KeyError("odd")], ids=repr)
async def test_error_of_the_upload_source_is_raised_unchanged(
    error: Exception, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"a"
        raise error

    async with ForwardProxy() as proxy, Peer(each(), tls) as peer, through(proxy, certificates) as link:
        with pytest.raises(type(error)) as caught:
            await link.send("POST", peer.url, body=broken())
        assert caught.value is error
        await until(lambda: proxy.open == 0)


async def test_unexpected_error_ends_the_request_at_once(
    certificates: Certificates, tls: ssl.SSLContext | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(aiohttp.ClientSession, "request", broken)
    async with ForwardProxy() as proxy, Peer(each(), tls) as peer, through(proxy, certificates) as link:
        with pytest.raises(RuntimeError, match="a bug"):
            await asyncio.wait_for(fetch(link, peer.url), 30)


# Memory --------------------------------------------------------------------------------------------------------------


async def test_requests_leave_nothing_to_the_garbage_collector(
    no_collector: None, certificates: Certificates, tls: ssl.SSLContext | None
) -> None:
    cut = each(OK, OK, OK, OK, CHUNKED + b"1\r\na\r\n")
    async with ForwardProxy(credentials=CREDENTIALS) as proxy, Peer(cut, tls) as peer:
        async with through(proxy, certificates, CREDENTIALS) as link:
            for _ in range(3):
                await fetch(link, peer.url)
            async with await link.send("POST", peer.url, headers={"Content-Length": "1"}, body=pieces(b"a")) as answer:
                assert await answer.read() == b"ok"
            async with await link.send("POST", peer.url, body=b"{}") as answer:
                assert await answer.read_chunk() == b"a"
            with contextlib.suppress(GatewayError):
                await fetch(link, "http://localhost:1/")
            await until(lambda: not link._proxy_client()._running)
            await turns()
            assert not garbage()
        async with through(proxy, certificates, "gate:wrong") as link:
            with contextlib.suppress(UpstreamAuthError):
                await fetch(link, peer.url)
            await until(lambda: not link._proxy_client()._running)
            await turns()
            assert not garbage()
