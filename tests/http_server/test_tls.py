"""TLS over real sockets: the handshake and its limits, and that connections behave as without it."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
import trustme
from tornado.ioloop import IOLoop
from tornado.web import RequestHandler, stream_request_body

from gateway.http_server.client_address import networks
from gateway.http_server.connection_limit import Dropped
from gateway.http_server.handshake import Handshake
from gateway.http_server.handshake_gate import is_whole_hello
from gateway.http_server.handshake_turns import HandshakeTurns
from gateway.http_server.peer import TlsPeer
from gateway.http_server.proxy_protocol import SIGNATURE
from gateway.http_server.tls_pair import new_own_client, own_context, server_context
from gateway.http_server.tls_state import TlsState
from tests.certificate_files import CertificateFiles, served_serial
from tests.delays import caller_is_silent_for
from tests.http_server.conftest import Client, Serve, Served
from tests.http_server.test_websocket import CLOSE, HANDSHAKE, TEXT, Switches, frame, read
from tests.polling import until

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
LARGE = b"x" * 8_000_000


class Hello(RequestHandler):
    def get(self) -> None:
        self.finish(f"{self.request.protocol} {self.request.remote_ip}")

    def post(self) -> None:
        self.finish(str(len(self.request.body)))


class Large(RequestHandler):
    def get(self) -> None:
        self.finish(LARGE)


@pytest.fixture
def files(tmp_path: Path) -> CertificateFiles:
    return CertificateFiles(tmp_path / "tls")


@pytest.fixture
def tls(files: CertificateFiles) -> TlsState:
    return TlsState(files.pairs().api)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.holds("operations/tls.md#protocol-1", "operations/tls.md#protocol-4")
async def test_requests_are_answered_by_each_version_of_tls(
    serve: Serve, tls: TlsState, files: CertificateFiles, version: ssl.TLSVersion
) -> None:
    served = await serve(Hello, tls=tls)
    context = files.client()
    context.minimum_version = context.maximum_version = version
    context.set_alpn_protocols(["h2", "http/1.1"])
    async with served.client(tls=context) as client:
        for _ in range(3):
            assert (await client.ask(GET)).body == b"https 127.0.0.1"
        upload = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 300000\r\n\r\n" + b"y" * 300_000
        assert (await client.ask(upload)).body == b"300000"
        assert client.writer.get_extra_info("ssl_object").selected_alpn_protocol() == "http/1.1"


def test_older_versions_of_tls_are_not_offered(files: CertificateFiles) -> None:
    context = server_context(files.pairs().api)
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert context.options & ssl.OP_NO_RENEGOTIATION


async def shake(client: Client, peer: ssl.SSLObject, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO) -> None:
    """Agree on TLS; the last bytes of the handshake stay in `outgoing`."""
    while True:
        try:
            peer.do_handshake()
            return
        except ssl.SSLWantReadError:
            client.send(outgoing.read())
            incoming.write(await client.reader.read(65_536))


async def test_request_in_the_segment_that_ends_the_handshake_is_answered(
    serve: Serve, tls: TlsState, files: CertificateFiles
) -> None:
    served = await serve(Hello, tls=tls)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = files.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with served.client() as client:
        await shake(client, peer, incoming, outgoing)
        peer.write(GET)
        client.send(outgoing.read())  # the end of the handshake, and the request
        answer = b""
        while b"https 127.0.0.1" not in answer:
            try:
                answer += peer.read(65_536)
            except ssl.SSLWantReadError:
                incoming.write(await client.reader.read(65_536))


async def test_client_that_leaves_in_the_segment_that_ends_the_handshake_leaves_no_connection(
    serve: Serve, tls: TlsState, files: CertificateFiles
) -> None:
    served = await serve(Hello, tls=tls)
    for _ in range(20):
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        peer = files.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
        async with served.client() as client:
            await shake(client, peer, incoming, outgoing)
            with pytest.raises(ssl.SSLWantReadError):
                peer.unwrap()
            client.send(outgoing.read())  # the end of the handshake, and that of TLS
    await until(lambda: served.server.connections == 0)


async def test_large_last_answer_reaches_a_slow_reader_whole(
    serve: Serve, tls: TlsState, files: CertificateFiles
) -> None:
    served = await serve(Large, tls=tls, linger_timeout=0.2)

    def connected() -> ssl.SSLSocket:  # that of uvloop drops what it has not passed on when the server closes
        plain = socket.create_connection(served.address, timeout=20.0)
        encrypted = files.client().wrap_socket(plain, server_hostname="localhost")
        encrypted.sendall(LAST)
        return encrypted

    with await asyncio.to_thread(connected) as sock:
        received = b""
        while piece := await asyncio.to_thread(sock.recv, 200_000):
            received += piece
            await caller_is_silent_for(0.002)  # longer, in total, than the time of a close
    assert received.endswith(b"\r\n\r\n" + LARGE)


async def test_reader_that_stops_is_dropped(serve: Serve, tls: TlsState, files: CertificateFiles) -> None:
    served = await serve(Large, tls=tls, write_timeout=0.3)
    async with served.client(tls=files.client()) as client:
        client.send(LAST)
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await until(lambda: served.server.connections == 1)
        await until(lambda: served.server.connections == 0)


async def test_refusal_reaches_a_client_that_still_sends(serve: Serve, tls: TlsState, files: CertificateFiles) -> None:
    served = await serve(Hello, tls=tls, max_body_bytes=1000)
    async with served.client(tls=files.client()) as client:
        client.send(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n")
        for _ in range(50):
            client.send(b"z" * 50_000)
            await asyncio.sleep(0)
        assert (await client.read()).status == 413


async def test_answer_without_a_length_that_is_cut_does_not_look_whole(
    serve: Serve, tls: TlsState, files: CertificateFiles
) -> None:
    class Cut(RequestHandler):
        async def get(self) -> None:
            self.write("half")
            await self.flush()
            self.request.connection.abort()  # type: ignore[attr-defined]

    served = await serve(Cut, tls=tls)
    context = files.client()
    context.options &= ~ssl.OP_IGNORE_UNEXPECTED_EOF
    async with served.client(tls=context) as client:
        client.send(b"GET / HTTP/1.0\r\n\r\n")
        with pytest.raises(OSError):
            while await client.reader.read(1000):
                pass
            raise AssertionError("it ended like a whole answer")


async def test_client_that_leaves_ends_its_request(serve: Serve, tls: TlsState, files: CertificateFiles) -> None:
    left = asyncio.Event()

    @stream_request_body
    class Endless(RequestHandler):
        async def get(self) -> None:
            self.write("begun")
            await self.flush()
            await left.wait()

        def data_received(self, chunk: bytes) -> None:
            pass

        def on_connection_close(self) -> None:
            left.set()

    served = await serve(Endless, tls=tls)
    async with served.client(tls=files.client()) as client:
        client.send(GET)
        await client.read_headers()
    await until(left.is_set)


@pytest.mark.holds("operations/tls.md#protocol-2")
async def test_plain_http_gets_a_plain_answer_and_a_line_of_the_log(
    serve: Serve, tls: TlsState, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(Hello, tls=tls)
    with caplog.at_level(logging.DEBUG, "gateway"):
        async with served.client() as client:
            client.send(GET)
            answer = await client.closed()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"HTTPS" in answer
    assert "no TLS with 127.0.0.1: the client sent plain HTTP, or something else that is not TLS" in caplog.text
    await until(lambda: served.server.connections == 0)


async def test_record_that_is_no_hello_is_closed(serve: Serve, tls: TlsState) -> None:
    served = await serve(Hello, tls=tls)
    async with served.client() as client:
        client.send(b"\x16garbage that begins like a handshake" * 10)
        with pytest.raises(ConnectionResetError):
            assert await client.closed() == b""
            raise ConnectionResetError
    await until(lambda: served.server.connections == 0)


async def silent(served: Served, count: int, source: str, first: bytes = b"") -> list[socket.socket]:
    """Connections that never finish their handshake."""
    sockets = []
    for _ in range(count):
        sock = socket.socket()
        sock.bind((source, 0))
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, served.address)
        if first:
            await asyncio.get_running_loop().sock_sendall(sock, first)
        sockets.append(sock)
    return sockets


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00"])
@pytest.mark.holds("operations/tls.md#limits-1")
async def test_many_slow_handshakes_of_an_address_do_not_keep_another_one_out(
    serve: Serve, tls: TlsState, files: CertificateFiles, first: bytes
) -> None:
    dropped: list[Dropped] = []
    served = await serve(Hello, tls=tls, max_connections=16, header_timeout=30.0, on_full=dropped.append)
    crowd = await silent(served, 40, "127.0.0.2", first)
    try:
        await until(lambda: served.server.connections == 14)  # seven eighths
        for _ in range(3):
            async with served.client(tls=files.client()) as client:
                assert (await client.ask(GET)).status == 200
        await until(lambda: sum(one.unfinished + one.refused for one in dropped) >= 26)
    finally:
        for sock in crowd:
            sock.close()


async def test_slow_handshakes_end_in_time(serve: Serve, tls: TlsState, caplog: pytest.LogCaptureFixture) -> None:
    served = await serve(Hello, tls=tls, header_timeout=0.2)
    with caplog.at_level(logging.DEBUG, "gateway"):
        crowd = await silent(served, 3, "127.0.0.1") + await silent(served, 3, "127.0.0.1", b"\x16\x03\x01")
        await until(lambda: served.server.connections == 6)
        await until(lambda: served.server.connections == 0)
    for sock in crowd:
        sock.close()
    assert caplog.text.count("it took too long") == 6


class Waiting:
    """A handshake that waits for its turn."""

    has_begun = False

    def __init__(self, address: str, begun: list[str], *, is_over: bool = False) -> None:
        self.context = TlsPeer(address)
        self.is_over = is_over
        self._begun = begun

    def shake(self) -> None:
        self._begun.append(self.context.remote_ip)


async def test_handshakes_are_begun_few_at_a_time_and_those_of_all_addresses_in_turn(io_loop: IOLoop) -> None:
    turns, begun = HandshakeTurns(), list[str]()
    for number in range(20):
        turns.add(cast(Handshake, Waiting("127.0.0.2", begun, is_over=number % 3 == 0)))
    turns.add(cast(Handshake, Waiting("127.0.0.3", begun)))
    await asyncio.sleep(0)
    assert begun == ["127.0.0.3", "127.0.0.2"] or begun == ["127.0.0.2", "127.0.0.3"]
    await until(lambda: len(begun) == 14)


def hello_of(context: ssl.SSLContext) -> bytes:
    """What a client sends first."""
    outgoing = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost").do_handshake()
    return outgoing.read()


@pytest.mark.parametrize("begins", [1, 6, 200])
@pytest.mark.holds("operations/tls.md#limits-1")
async def test_rest_of_a_hello_that_was_held_back_waits_for_a_turn_too(
    serve: Serve, tls: TlsState, files: CertificateFiles, monkeypatch: pytest.MonkeyPatch, begins: int
) -> None:
    waiting: list[Handshake] = []
    monkeypatch.setattr(HandshakeTurns, "add", lambda _, handshake: waiting.append(handshake))
    served, hello = await serve(Hello, tls=tls), hello_of(files.client())
    async with served.client() as client:
        client.send(hello[:begins])
        for _ in range(2):  # to begin, and for the part that is there
            await until(lambda: len(waiting) == 1)
            waiting.pop().shake()
        await caller_is_silent_for(0.05)
        client.send(hello[begins:])
        await until(lambda: len(waiting) == 1)
        await caller_is_silent_for(0.05)
        assert not client.reader._buffer  # type: ignore[attr-defined] # nothing is computed
        waiting.pop().shake()
        assert await asyncio.wait_for(client.reader.readexactly(1), 5) == b"\x16"


async def test_handshake_in_single_bytes_succeeds(serve: Serve, tls: TlsState, files: CertificateFiles) -> None:
    served = await serve(Hello, tls=tls)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = files.client().wrap_bio(incoming, outgoing, server_hostname="localhost")
    async with served.client() as client:

        async def trickle() -> None:
            for byte in outgoing.read():
                client.send(bytes([byte]))
                await asyncio.sleep(0)

        while True:
            try:
                peer.do_handshake()
                break
            except ssl.SSLWantReadError:
                await trickle()
                incoming.write(await client.reader.read(65_536))
        peer.write(GET)
        await trickle()
        answer = b""
        while b"https 127.0.0.1" not in answer:
            try:
                answer += peer.read(65_536)
            except ssl.SSLWantReadError:
                incoming.write(await client.reader.read(65_536))


def test_hello_is_whole_in_one_record(files: CertificateFiles) -> None:
    hello = hello_of(files.client())
    assert is_whole_hello(hello)
    assert is_whole_hello(hello + b"more")
    assert not any(is_whole_hello(hello[:size]) for size in range(len(hello)))
    part = hello[5:100]
    assert not is_whole_hello(hello[:3] + len(part).to_bytes(2) + part)  # a message in several records


async def test_handshake_that_has_begun_comes_before_others_of_its_address(io_loop: IOLoop) -> None:
    turns, begun = HandshakeTurns(), list[str]()
    for number in range(1, 9):
        turns.add(cast(Handshake, Waiting(f"2001:db8::{number}", begun)))
    further = Waiting("2001:db8::ffff", begun)
    further.has_begun = True
    turns.add(cast(Handshake, further))
    await until(lambda: len(begun) == 9)
    assert begun[0] == "2001:db8::ffff"


@pytest.mark.holds("operations/tls.md#client-certificates-1", "operations/tls.md#client-certificates-2")
async def test_client_needs_a_certificate_of_the_authority(
    serve: Serve, files: CertificateFiles, caplog: pytest.LogCaptureFixture
) -> None:
    served = await serve(Hello, tls=TlsState(files.pairs(client_ca=True).api))
    async with served.client(tls=files.client(files.authority)) as client:
        assert (await client.ask(GET)).status == 200
    for context in (files.client(), files.client(trustme.CA())):
        with pytest.raises((OSError, asyncio.IncompleteReadError)):
            async with served.client(tls=context) as client:
                await client.ask(GET)
    assert "refused 1 connections for their certificate, the last one: 127.0.0.1: the client has no certificate" in (
        caplog.text
    )
    await until(lambda: served.server.connections == 0)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.holds("operations/tls.md#client-certificates-2")
async def test_session_is_not_resumed_once_the_certificate_of_its_client_has_expired(
    serve: Serve, files: CertificateFiles, version: ssl.TLSVersion
) -> None:
    served = await serve(Hello, tls=TlsState(files.pairs(client_ca=True).api))
    ends = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=2)
    context = files.client()
    context.minimum_version = context.maximum_version = version
    files.authority.issue_cert("client@example.com", not_after=ends).configure_cert(context)

    def asked(session: ssl.SSLSession | None) -> tuple[bytes, ssl.SSLSession | None]:
        plain = socket.create_connection(served.address, timeout=5.0)
        with context.wrap_socket(plain, server_hostname="localhost", session=session) as sock:
            sock.sendall(GET)
            return sock.recv(1000), sock.session

    answer, session = await asyncio.to_thread(asked, None)
    assert b"200 OK" in answer
    await until(lambda: datetime.now(UTC) > ends + timedelta(seconds=1))
    try:
        answer, _ = await asyncio.to_thread(asked, session)
    except OSError:
        answer = b""
    assert answer == b""


@pytest.mark.holds("operations/tls.md#client-certificates-2")
async def test_own_client_of_the_machine_is_let_in_and_trusts_the_certificate_alone(
    serve: Serve, files: CertificateFiles, tmp_path: Path
) -> None:
    pairs = files.pairs(client_ca=True, own_client=new_own_client())
    served = await serve(Hello, tls=TlsState(pairs.api))
    async with served.client(tls=own_context(pairs.console)) as client:
        assert (await client.ask(GET)).status == 200
    other = CertificateFiles(tmp_path / "other").pairs(client_ca=True, own_client=new_own_client())
    with pytest.raises(ssl.SSLCertVerificationError):
        async with served.client(tls=own_context(other.console)):
            pass


@pytest.mark.holds("operations/tls.md#renewal-1")
async def test_renewed_pair_is_that_of_new_connections_and_open_ones_go_on(
    serve: Serve, tls: TlsState, files: CertificateFiles
) -> None:
    served = await serve(Hello, tls=tls)
    before = files.serial()
    async with served.client(tls=files.client()) as old:
        await old.ask(GET)
        after = files.issue()
        await tls.use(files.pairs().api)
        async with served.client(tls=files.client()) as new:
            assert served_serial(new.writer.get_extra_info("ssl_object")) == after != before
        assert served_serial(old.writer.get_extra_info("ssl_object")) == before
        assert (await old.ask(GET)).status == 200


@pytest.mark.holds("operations/tls.md#protocol-3")
async def test_proxy_header_comes_before_tls(serve: Serve, tls: TlsState, files: CertificateFiles) -> None:
    served = await serve(Hello, tls=tls, preface_from=networks(("127.0.0.1",)))
    addresses = socket.inet_aton("203.0.113.7") + socket.inet_aton("127.0.0.1") + b"\x00\x50\x00\x50"
    header = SIGNATURE + b"\x21\x11" + len(addresses).to_bytes(2, "big") + addresses
    async with served.client() as client:
        client.send(header[:20])
        await client.writer.drain()
        client.send(header[20:])
        await client.writer.start_tls(files.client(), server_hostname="localhost")
        assert (await client.ask(GET)).body == b"https 203.0.113.7"


async def test_drain_ends_handshakes_and_waits_for_answers(
    serve: Serve, tls: TlsState, files: CertificateFiles
) -> None:
    go = asyncio.Event()

    class Slow(RequestHandler):
        async def get(self) -> None:
            await go.wait()
            self.finish("done")

    served = await serve(Slow, tls=tls)
    crowd = await silent(served, 2, "127.0.0.1", b"\x16")
    async with served.client(tls=files.client()) as client:
        client.send(GET)
        await until(lambda: served.server.connections == 3)
        served.server.close_listener()
        draining = asyncio.create_task(served.server.drain(20.0))
        await until(lambda: served.server.connections == 1)
        go.set()
        assert (await client.read()).body == b"done"
    await draining
    for sock in crowd:
        sock.close()
    with pytest.raises(OSError):
        async with served.client():
            pass


@pytest.mark.holds("operations/tls.md#protocol-1")
async def test_websocket_works_over_tls(serve: Serve, tls: TlsState, files: CertificateFiles) -> None:
    app = Switches()
    served = await serve(app, tls=tls)
    async with served.client(tls=files.client()) as client:
        client.send(HANDSHAKE)
        assert (await client.read_headers())[0] == 101
        long = b"z" * 70_000
        for text in (b"hello", long):
            client.send(frame(TEXT, text))
            assert await read(client) == (TEXT, text)
        client.send(frame(TEXT, b"y" * 200_000))  # more than a message may have, and more follows
        client.send(frame(TEXT, b"y" * 200_000))
        kind, payload = await read(client)
        assert (kind, int.from_bytes(payload[:2], "big")) == (CLOSE, 1009)
    await until(lambda: app.users[0].closed == 1)
    await until(lambda: served.server.connections == 0)
