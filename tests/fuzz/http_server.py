"""The HTTP server and the gateway's handlers, over sockets: they answer anything with OpenAI's errors, or close.

The key in the requests is wrong, so no request is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import tempfile
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from gateway.api.protocol_errors import ProtocolErrors
from gateway.config.loader import demo_settings
from gateway.http_server.limits import ServerLimits
from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from gateway.store import EmbeddedServer, Store
from tests.conftest import PEPPER
from tests.fuzz.choices import Choices
from tests.fuzz.cuts import pieces
from tests.fuzz.http_parser import CLOSED, ERROR, parse
from tests.fuzz.requests import Requests, requests_of

WITHIN = 20.0  # seconds until the server has closed
LIMITS = ServerLimits(max_header_bytes=900, max_header_count=20, max_body_bytes=4096, linger_timeout=2.0)
MOST_WRITTEN = 2**20
INSIDE = (b"Traceback", b'File "', b".py", b"Error(", b"0x")


class Conversation(Struct, frozen=True):
    """What one client does."""

    requests: Requests
    fin: bool  # it sends its FIN, and reads on


class Answer(Struct, frozen=True):
    """One answer."""

    status: int
    headers: dict[bytes, bytes]
    body: bytes


class ServerTarget:
    """`HTTPServer` with every handler of the gateway."""

    name = "http_server"
    seconds = 2.0

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._loop = asyncio.new_event_loop()
        self._stray: list[Any] = []
        self._loop.set_exception_handler(lambda _, context: self._stray.append(context))
        self._loop.run_until_complete(self._start(Path(self._folder.name)))

    def make(self, choices: Choices) -> Conversation:
        return Conversation(requests_of(choices), choices.one_in(4))

    def check(self, case: Conversation) -> None:
        data = case.requests.encode()
        received = self._loop.run_until_complete(self._converse(case, data))
        answers = read_answers(received)
        for answer in answers:
            check_answer(answer)
        requests, end = parse([data])
        assert len(answers) <= len(requests) + 1, (data, received)
        closed = bool(answers) and answers[-1].headers.get(b"connection") == b"close"
        # Bytes behind the last request may reset the connection before the client has read its answer.
        assert case.fin or closed or end is CLOSED or len(answers) >= len(requests), (data, received)
        assert self._stray == []

    def close(self) -> None:
        self._loop.run_until_complete(self._stop())
        self._loop.close()
        self._folder.cleanup()

    async def _start(self, folder: Path) -> None:
        self._store_server = EmbeddedServer(folder / "store")
        await asyncio.to_thread(self._store_server.start_blocking)
        self._store = await Store.open(self._store_server.socket, timeout=5.0)
        self._gateway = await Gateway.build(demo_settings(folder), self._store, pepper=PEPPER)
        self._gateway.overload.max_lag = 0.0
        self._gateway.access_log.enabled = False
        self._server = HTTPServer(self._gateway.application(), LIMITS, on_protocol_error=ProtocolErrors(self._gateway))
        listener = socket.create_server(("127.0.0.1", 0), backlog=100)
        self._address = listener.getsockname()
        await self._server.start(listener)

    async def _stop(self) -> None:
        self._server.close_listener()
        await self._server.drain(0.1)
        await self._gateway.close()
        await self._store.close()
        await asyncio.to_thread(self._store_server.stop_blocking)

    async def _converse(self, case: Conversation, data: bytes) -> bytes:
        """Send the requests; return everything that is received until the server has closed."""
        requests, end = parse([data])
        reader, writer = await asyncio.open_connection(*self._address)
        received = bytearray()
        try:
            async with asyncio.timeout(WITHIN):
                with contextlib.suppress(ConnectionError):
                    for piece in pieces(data, case.requests.cuts[:4]):
                        writer.write(piece)
                        await asyncio.sleep(0)
                    # Without a FIN, every request is answered, and the connection is closed after an invalid one.
                    if case.fin or not (requests or end is ERROR):
                        writer.write_eof()
                    while piece := await reader.read(65_536):
                        received += piece
                        assert len(received) <= MOST_WRITTEN
                        if end is not ERROR and len(read_answers(bytes(received))) >= len(requests):
                            with contextlib.suppress(OSError):
                                writer.write_eof()
        finally:
            writer.transport.abort()
        return bytes(received)


def read_answers(received: bytes) -> list[Answer]:
    """The answers of one connection; each is whole."""
    answers = []
    while received:
        head, end, received = received.partition(b"\r\n\r\n")
        assert end, head
        line, *lines = head.split(b"\r\n")
        status = int(line.split(b" ")[1])
        if status == 100:
            continue
        headers = dict(one.split(b": ", 1) for one in lines)
        length = int(headers.get(b"Content-Length", b"0"))
        # An answer to HEAD has no body: the next answer follows, or nothing.
        body = b"" if not received or received.startswith(b"HTTP/1.1 ") else received[:length]
        received = received[len(body) :]
        assert len(body) in (0, length), head
        answers.append(Answer(status, {name.lower(): value for name, value in headers.items()}, body))
    return answers


def check_answer(answer: Answer) -> None:
    """It is an error in OpenAI's form."""
    if answer.status < 300:  # OPTIONS
        return
    assert 400 <= answer.status < 500, answer
    assert answer.headers[b"content-type"] == b"application/json", answer
    assert answer.headers[b"x-request-id"].startswith(b"req_"), answer
    if answer.body:
        error = msgspec.json.decode(answer.body)["error"]
        assert set(error) == {"message", "type", "param", "code"}, answer
        assert not any(inside in answer.body for inside in INSIDE), answer
