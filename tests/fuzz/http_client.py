"""The HTTP client's side of an answer: the same result wherever the answer is cut, and the one that h11 reads.

The connection has no socket: the target calls it as the event loop would.
"""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Sequence
from typing import Any

import h11
from msgspec import Struct

from gateway.errors import GatewayError, UpstreamInvalidResponse, UpstreamTruncated, UpstreamUnreachable
from gateway.http_client.connection import ClientConnection
from gateway.http_client.deadline_timer import Deadlines
from gateway.http_client.response import Response
from gateway.http_client.timeouts import Timeouts
from gateway.http_client.upstream import Answer
from tests.fuzz.choices import Choices
from tests.fuzz.cuts import Damage, cuts_of, damaged, damages_of, pieces

MOST = 64 * 1024  # bytes of an answer that is read as a whole
STATUSES = (
    b"200 OK",
    b"200 OK",
    b"200 OK",
    b"400 Bad",
    b"500 x",
    b"204 No",
    b"304 No",
    b"200",
    b"999 x",
    b"0 x",
    b"101 S",
)
CODINGS = ("", "", "", "gzip", "deflate", "raw")
CONTENTS = (b"", b"{}", b'{"a":1}', b"data: {}\n\n", b"\r\n\r\n", b"x" * 300)
HEADERS = (
    b"X: y", b"x: z", b"Content-Type: a", b"Connection: close", b"Connection: keep-alive", b"Content-Length: 3",
    b"Content-Length: 0", b"Transfer-Encoding: chunked", b"Transfer-Encoding: gzip, chunked", b"Content-Encoding: br",
    b"Upgrade: h2c", b"Connection: upgrade", b" folded", b"no colon", b"X: a\x00b", b"Y: " + b"y" * 300,
)  # fmt: skip
INTERIM = (b"", b"", b"", b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nLink: x\r\n\r\n")
AFTER = (b"", b"", b"", b"x", b"\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")


class Sent(Struct, frozen=True):
    """What an upstream sends."""

    interim: bytes
    version: bytes
    status: bytes
    headers: list[bytes]
    content: bytes
    coding: str
    framing: str  # length, chunked, none
    chunk: int
    trailers: list[bytes]
    after: bytes  # the end of the answer
    damages: list[Damage]
    cuts: list[int]
    eof: bool

    @property
    def valid(self) -> bool:
        """Whether the answer is complete and has nothing odd."""
        plain = not (self.damages or self.headers or self.trailers or self.after or self.interim)
        return plain and self.status == b"200 OK" and (self.framing != "none" or self.eof)

    def encode(self) -> bytes:
        """The bytes."""
        body = compressed(self.content, self.coding)
        lines = [b"HTTP/%b %b" % (self.version, self.status), *self.headers]
        if self.coding:
            lines.append(b"Content-Encoding: " + ("gzip" if self.coding == "gzip" else "deflate").encode())
        if self.framing == "length":
            lines.append(b"Content-Length: %d" % len(body))
        elif self.framing == "chunked":
            lines.append(b"Transfer-Encoding: chunked")
            parts = [body[at : at + self.chunk] for at in range(0, len(body), self.chunk)]
            trailers = b"".join(line + b"\r\n" for line in self.trailers)
            body = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in parts) + b"0\r\n" + trailers + b"\r\n"
        return damaged(self.interim + b"\r\n".join(lines) + b"\r\n\r\n" + body + self.after, self.damages)


def compressed(content: bytes, coding: str) -> bytes:
    """The body of that content."""
    match coding:
        case "gzip":
            return gzip.compress(content, mtime=0)
        case "deflate":
            return zlib.compress(content)
        case "raw":
            return zlib.compress(content, wbits=-zlib.MAX_WBITS)
    return content


class Result(Struct, frozen=True):
    """What the reader of an answer gets."""

    status: int
    body: bytes
    error: str  # the name of its class, or ""
    kept: bool  # the connection is used again


class Transport(asyncio.Transport):
    """A transport that drops what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        """Drop it."""

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def abort(self) -> None:
        self.closed = True

    def pause_reading(self) -> None:
        """The target reads on: it never sends more than the reader takes at once."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""


class Origin:
    """The keeper of the connection."""

    def __init__(self) -> None:
        self._buffer = bytearray(65_536)
        self.read_view = memoryview(self._buffer)
        self.kept = 0

    def opened(self, connection: ClientConnection) -> None:
        """A connection was made."""

    def put_back(self, connection: ClientConnection) -> None:
        self.kept += 1

    def lost(self, connection: ClientConnection) -> None:
        """A connection is gone."""


class ClientTarget:
    """`ClientConnection`, `Response`, `Answer` and `Inflater`."""

    name = "http_client"
    seconds = 1.0

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._deadlines = Deadlines(self._loop)

    def make(self, choices: Choices) -> Sent:
        odd = choices.one_in(2)

        def lines() -> list[bytes]:
            return choices.many(lambda: choices.of(HEADERS), 3) if odd else []

        return Sent(
            interim=choices.of(INTERIM) if odd else b"",
            version=choices.pick(b"1.1", b"1.1", b"1.1", b"1.0", b"2.0"),
            status=choices.of(STATUSES) if odd else b"200 OK",
            headers=lines(),
            content=choices.data(20) if choices.one_in(3) else choices.of(CONTENTS),
            coding=choices.of(CODINGS),
            framing=choices.pick("length", "chunked", "none"),
            chunk=choices.number(1, 40),
            trailers=lines(),
            after=choices.of(AFTER) if odd else b"",
            damages=damages_of(choices) if odd else [],
            cuts=cuts_of(choices),
            eof=choices.one_in(2),
        )

    def check(self, case: Sent) -> None:
        data = case.encode()
        whole = self._loop.run_until_complete(self._receive([data], eof=case.eof))
        cut = self._loop.run_until_complete(self._receive(pieces(data, case.cuts), eof=case.eof))
        assert (cut.status, cut.error) == (whole.status, whole.error), (data, whole, cut)
        assert whole.kept or not cut.kept, (data, whole, cut)
        if not whole.error:
            assert cut.body == whole.body, (data, whole, cut)
        if case.valid and case.version != b"2.0":
            assert (whole.status, whole.body, whole.error) == (200, case.content, ""), (data, whole)
        theirs = read_by_h11(data, eof=case.eof)
        if theirs is not None and not whole.error:
            status, body, rest = theirs
            assert whole.status == status, (data, whole)
            assert whole.body == body or b"encoding" in data.lower().replace(b"transfer-encoding", b""), (data, whole)
            assert not (whole.kept and rest.strip(b"\r\n")), (data, whole)

    def close(self) -> None:
        self._deadlines.close()
        self._loop.close()

    async def _receive(self, stream: Sequence[bytes], *, eof: bool) -> Result:
        origin, transport = Origin(), Transport()
        connection = ClientConnection(origin)
        connection.connection_made(transport)
        response = Response(self._loop, self._deadlines, Timeouts(), started=self._loop.time())
        connection.start(response, b"", b"{}")
        for piece in stream:
            if not transport.closed:
                origin.read_view[: len(piece)] = piece
                connection.buffer_updated(len(piece))
        kept = origin.kept == 1 and not transport.closed
        assert origin.kept <= 1
        if not transport.closed and eof:
            connection.eof_received()
        waiting = not response.ended
        if waiting:
            response.cut("the end of the case")
        try:
            response.check_head()
            body = await Answer(response).read(limit=MOST)
        except (UpstreamInvalidResponse, UpstreamTruncated, UpstreamUnreachable) as error:
            return Result(response.status, b"", name_of(error, waiting), kept)
        finally:
            connection.connection_lost(None)
        assert not waiting
        return Result(response.status, body, "", kept)


def name_of(error: GatewayError, waiting: bool) -> str:
    """The class of the error; "waiting" if the answer had not ended."""
    return "waiting" if waiting else type(error).__name__


def read_by_h11(data: bytes, *, eof: bool) -> tuple[int, bytes, bytes] | None:
    """The status, the body and the rest that h11 reads; None if it refuses the answer or misses a part."""
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="POST", target="/", headers=[("Host", "x"), ("Content-Length", "0")]))
    peer.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        peer.receive_data(data)
        if eof:
            peer.receive_data(b"")
        while True:
            event = peer.next_event()
            if isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage):
                return status, body, bytes(peer.trailing_data[0])
            elif not isinstance(event, h11.InformationalResponse):
                return None
    except h11.ProtocolError:
        return None
