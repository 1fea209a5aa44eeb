"""One connection to an upstream: an asyncio protocol with llhttp that carries one exchange after the other.

llhttp calls C functions where possible: headers go directly into a dict (`setdefault`: the first value of a name is
kept), body pieces into a list (`append`), and Python code runs once per read of the socket. A chunk of an event stream
costs 0.5 µs here, and 3.3 µs until its reader has the event. The read buffer belongs to the pool: it is emptied before
another connection reads.

A connection goes back to its pool when the body's end was read, the request was sent completely and both sides keep it
alive. Sharp edge: any byte that arrives outside an exchange closes the connection. Otherwise it could be taken for the
answer to the next request.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol, cast

import httptools

from gateway.errors import UpstreamInvalidResponse
from gateway.http_client.response import Response
from gateway.http_client.upload import Upload

MAX_HEAD_BYTES: Final = 64 * 1024
FRAMING: Final = 64  # bytes of one read; a read of more without content is not only the frame of a chunk
JOIN_BYTES: Final = 64 * 1024  # bodies up to this size are sent in one write with their head; larger ones are not
WRITE_HIGH_WATER: Final = 256 * 1024


class AnswerHeaders(Mapping[str, str]):
    """Headers by name in any case, decoded on access, because most answers need only one of them."""

    __slots__ = ("_raw",)

    def __init__(self, raw: dict[bytes, bytes]) -> None:
        self._raw = raw

    def __getitem__(self, name: str) -> str:
        value = self._find(name.lower().encode("latin-1", "replace"))
        if value is None:
            raise KeyError(name)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(raw.decode("latin-1").lower() for raw in self._raw))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def coding(self) -> str:
        """The Content-Encoding; "" for none."""
        return self._find(b"content-encoding") or ""

    def _find(self, name: bytes) -> str | None:
        length = len(name)
        for raw, value in self._raw.items():
            if len(raw) == length and raw.lower() == name:
                return value.decode("latin-1").rstrip(" \t")
        return None


class ConnectionKeeper(Protocol):
    """The keeper of connections to one origin."""

    read_view: memoryview

    def opened(self, connection: ClientConnection) -> None:
        """A connection was made."""

    def put_back(self, connection: ClientConnection) -> None:
        """A connection is free."""

    def lost(self, connection: ClientConnection) -> None:
        """A connection is gone."""


@dataclass(eq=False, repr=False, slots=True)
class ClientConnection(asyncio.BufferedProtocol):
    """Made by `Origin.connect`; `start` an exchange on it, one at a time."""

    _origin: ConnectionKeeper
    _transport: asyncio.Transport = field(init=False)
    _incoming: Response | None = None
    _headers: dict[bytes, bytes] = field(default_factory=dict)
    _pieces: list[bytes] = field(default_factory=list)
    # Callbacks of httptools; it keeps the bound methods, so both containers live as long as the parser does.
    on_header: Callable[[bytes, bytes], bytes] = field(init=False)
    on_body: Callable[[bytes], None] = field(init=False)
    # Not before `connection_made`: uvloop makes a protocol first, and drops it if no address answers.
    _parser: httptools.HttpResponseParser | None = None
    _upload: asyncio.Task[None] | None = None
    _writable: asyncio.Future[None] | None = None
    _is_head_request: bool = False
    _head_done: bool = False
    _complete: bool = False
    _stray: bool = False
    _keep_alive: bool = False
    _paused: bool = False
    _closing: bool = False
    _head_bytes: int = 0
    _trailer_bytes: int = 0
    idle_since: float = 0.0

    def __post_init__(self) -> None:
        self.on_header = self._headers.setdefault
        self.on_body = self._pieces.append

    # The pool's side -------------------------------------------------------------------------------------------------

    @property
    def usable(self) -> bool:
        """Whether an idle connection can carry another exchange, as far as this side knows."""
        return not self._closing and not self._transport.is_closing()

    def start(self, incoming: Response, head: bytes, body: bytes = b"", *, method: str = "POST") -> None:
        """Send a request, complete or only its head; its answer goes to `incoming`."""
        self._incoming = incoming
        incoming.carried_by(self)
        self._is_head_request = method == "HEAD"
        self._head_done = self._complete = False
        self._head_bytes = self._trailer_bytes = 0
        if len(body) <= JOIN_BYTES:
            self._transport.write(head + body)
        else:
            # No writelines here or below: CPython 3.12.0 to 3.12.8 and 3.13.0 to 3.13.1 forget to apply back-pressure
            # after it (CVE-2024-12254), and a stalled upload then grows until the machine has no memory left.
            self._transport.write(head)
            self._transport.write(body)

    def upload(self, incoming: Response, source: AsyncIterator[bytes], *, length: int | None) -> None:
        """Send the body of the started request while its answer may arrive: chunked, or `length` bytes."""
        pieces = Upload(incoming.watching(source), length)
        upload = asyncio.get_running_loop().create_task(self._send_body(pieces, chunked=length is None))
        upload.add_done_callback(self._upload_ended)
        self._upload = upload

    def drop(self, why: str) -> None:
        """Close at once, and tell the reader of a running answer."""
        incoming = self._incoming
        self.abort()
        if incoming is not None:
            incoming.cut(why)

    # The exchange's side: Carrier ------------------------------------------------------------------------------------

    def pause(self) -> None:
        if not self._paused and not self._closing:
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            if not self._closing:
                self._transport.resume_reading()

    def abort(self) -> None:
        """Close at once: `close` would first flush an incomplete request, and with TLS wait for the peer's close."""
        self._closing = True
        self._incoming = None
        self._stop_upload()
        self._transport.abort()

    # asyncio's side --------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._parser = httptools.HttpResponseParser(self)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        sock = transport.get_extra_info("socket")
        if sock is not None:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._origin.opened(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._origin.read_view

    def buffer_updated(self, nbytes: int) -> None:
        incoming, parser = self._incoming, self._parser
        if incoming is None or parser is None:
            self._close()
            return
        head_was_done = self._head_done
        try:
            parser.feed_data(self._origin.read_view[:nbytes])
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._stray = True
            if not self._complete:
                if self._pieces:
                    incoming.push(b"".join(self._pieces))
                self._malformed(incoming, f"{type(error).__name__}: {error}")
                return
        if not head_was_done and not self._head_in_bounds(nbytes):
            self._malformed(incoming, f"the headers are over {MAX_HEAD_BYTES} bytes")
            return
        pieces = self._pieces
        if pieces:
            piece = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            pieces.clear()
            incoming.push(piece)
        elif self._head_done and not head_was_done:
            incoming.wake()
        elif head_was_done and nbytes > FRAMING and not self._trailers_in_bounds(nbytes):
            self._malformed(incoming, f"trailers or chunk extensions are over {MAX_HEAD_BYTES} bytes")
            return
        if self._complete:
            self._finish(incoming)

    def eof_received(self) -> bool:
        incoming = self._incoming
        if incoming is not None:
            if self._head_done and self._ends_with_connection():
                self._keep_alive = False
                self._finish(incoming)
            else:
                self._fail(incoming, "the upstream closed the connection")
        self._closing = True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        incoming = self._incoming
        if incoming is not None:
            self._fail(incoming, f"{type(exc).__name__}: {exc}" if exc else "the connection was closed")
        self._stop_upload()
        self._parser = None  # it holds bound methods of this object: a cycle for the collector
        self.resume_writing()
        self._origin.lost(self)

    def pause_writing(self) -> None:
        self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        writable, self._writable = self._writable, None
        if writable is not None and not writable.done():
            writable.set_result(None)

    # llhttp's side ---------------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        if self._complete:  # stop here, or the body of an unexpected answer would be added to this one
            raise ValueError("an answer nobody asked for")

    def on_headers_complete(self) -> None:
        assert self._parser is not None
        if self._incoming is None:
            return
        status = self._parser.get_status_code()
        if status < 200:  # an interim answer: the real one follows
            if status == 101:
                raise ValueError("switching protocols was not asked for")
            self._headers.clear()
            return
        self._keep_alive = self._parser.should_keep_alive()  # forgotten once a message without a body is complete
        if self._upload is not None and not self._upload.done():  # answered early: the rest is not needed
            self._stop_upload()
            self._keep_alive = False
        self._head_done = True
        headers = AnswerHeaders(self._headers.copy())
        self._incoming.begin(status, headers, coding=headers.coding())
        if self._is_head_request:  # llhttp waits for the body that Content-Length announces
            self._complete, self._keep_alive = True, False

    def on_message_complete(self) -> None:
        if self._head_done:
            self._complete = True

    # The answer ------------------------------------------------------------------------------------------------------

    def _head_in_bounds(self, nbytes: int) -> bool:
        before = self._head_bytes
        self._head_bytes += nbytes
        if self._head_bytes <= MAX_HEAD_BYTES:
            return True
        # The rest of this read may be body. The dict has only the first value of a repeated header name.
        size = sum(len(name) + len(value) + 4 for name, value in self._headers.items())
        return self._head_done and max(before, size) <= MAX_HEAD_BYTES

    def _trailers_in_bounds(self, nbytes: int) -> bool:
        """Count bytes that are neither head nor content. Small reads are not counted: the idle time limits those."""
        self._trailer_bytes += nbytes
        return self._trailer_bytes <= MAX_HEAD_BYTES

    def _ends_with_connection(self) -> bool:
        names = {name.lower() for name in self._headers}
        return b"content-length" not in names and b"transfer-encoding" not in names

    def _finish(self, incoming: Response) -> None:
        """The answer is complete: hand the connection back, or close it."""
        self._incoming = self._upload = None
        incoming.end()
        sent = not self._transport.get_write_buffer_size()
        if self._keep_alive and sent and not self._stray and self.usable:
            self._headers.clear()
            if self._paused:
                self.resume()
            self._origin.put_back(self)
        else:
            self._close()

    def _malformed(self, incoming: Response, why: str) -> None:
        self.abort()
        incoming.fail(UpstreamInvalidResponse(detail=why[:300]))

    def _fail(self, incoming: Response, why: str) -> None:
        self._incoming = None
        self._stop_upload()
        incoming.cut(why)

    def _close(self) -> None:
        self._closing = True
        self._transport.abort()

    # The request's body ----------------------------------------------------------------------------------------------

    async def _send_body(self, pieces: Upload, *, chunked: bool) -> None:
        try:
            async for piece in pieces:
                if not chunked:
                    self._transport.write(piece)
                elif piece:  # an empty chunk would end the body
                    self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                if self._writable is not None:
                    await self._writable
        finally:
            await pieces.close()
        if chunked:
            self._transport.write(b"0\r\n\r\n")

    def _upload_ended(self, upload: asyncio.Task[None]) -> None:
        error = None if upload.cancelled() else upload.exception()
        incoming = self._incoming
        if isinstance(error, Exception) and incoming is not None and self._upload is upload:
            # An error of the source is raised to the caller that passed it; the upstream gets an incomplete request.
            self.abort()
            incoming.fail(error)

    def _stop_upload(self) -> None:
        upload, self._upload = self._upload, None
        if upload is not None:
            upload.cancel()
