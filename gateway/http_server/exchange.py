"""One request and its answer, as Tornado's `httputil.HTTPConnection`: the `request.connection` of handlers.

`write_headers`, `write` and `finish` work as in Tornado. Additional methods are `abort`, `reset`, `set_max_body_size`,
`set_body_timeout` and `set_close_callback`. Sharp edge: only `finish` ends a body properly. A handler that fails after
its headers were sent must call `abort`; Tornado's `send_error` would finish an incomplete answer like a complete one.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

from tornado import httputil
from tornado.iostream import StreamClosedError

from gateway.errors import GatewayError
from gateway.http_server.client_writer import ClientWriter
from gateway.http_server.head import RequestHead
from gateway.http_server.peer import PeerContext
from gateway.http_server.server_state import ServerState

log = logging.getLogger(__name__)

# Written by this server itself; values that a handler sets are ignored.
OWN_HEADERS: Final = frozenset({"Connection", "Date", "Server", "Transfer-Encoding"})
BODILESS: Final = frozenset({204, 304})
REASONS: Final = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}  # as Anthropic answers
#: Bytes; headers and a body up to this size are sent in one write, for which a larger body is not copied.
COPY_UP_TO: Final = 65_536
Refusal = Callable[[GatewayError], tuple[dict[str, str], bytes]]
_line_break = re.compile(r"[\r\n\0]")


class Carrier(Protocol):
    """The part of a connection that its exchange uses."""

    context: PeerContext
    loop: asyncio.AbstractEventLoop
    state: ServerState
    writer: ClientWriter

    def can_keep_alive(self) -> bool:
        """Whether it can carry another request, asked when the headers of an answer are written."""

    def response_finished(self, exchange: Exchange) -> None:
        """Continue with the next request, or close, as the headers of the finished answer said."""

    def cut(self, *, reset: bool) -> None:
        """Close without an end of the body; `reset` if the client would take a FIN for the end."""

    def reset(self) -> None:
        """Close at once with RST; unsent bytes are dropped."""

    def fail(self, exchange: Exchange) -> None:
        """Answer 500, because the application ended without an answer."""

    def detach(self, block: bytes) -> Any:
        """Answer with `block`, and leave the socket to another protocol; see `Detached` of `connection_owner`."""


class Exchange(httputil.HTTPConnection):
    """The answer to one request; when it is finished or its client has disconnected, it refuses to write."""

    __slots__ = (
        "_chunked",
        "_close_callback",
        "_connection",
        "_corked",
        "_remaining",
        "body_timeout",
        "context",
        "finished",
        "head",
        "headers_written",
        "loop",
        "max_body_bytes",
        "no_keep_alive",
        "refusal",
    )

    def __init__(self, connection: Carrier, head: RequestHead, *, max_body_bytes: int) -> None:
        self.head = head
        self.context: PeerContext = connection.context
        self.loop = connection.loop
        self.no_keep_alive = not head.keep_alive
        self.max_body_bytes = max_body_bytes
        self.body_timeout: float | None = None
        self.headers_written = False
        self.finished = False
        self.refusal: Refusal | None = None  # the handler's own answer when this server refuses the request
        self._connection: Carrier | None = connection
        self._close_callback: Callable[[], object] | None = None
        self._chunked = False
        self._remaining: int | None = None  # body bytes that Content-Length still requires
        self._corked = b""  # a header block that waits for its first body bytes, or for the end of the tick

    # Methods that Tornado calls.

    def set_close_callback(self, callback: Callable[[], object] | None) -> None:
        """Run `callback` if the client disconnects before the answer is finished."""
        self._close_callback = callback

    def set_max_body_size(self, max_body_size: int) -> None:
        """Change the limit for this request's body, in bytes; call it before the body is read."""
        self.max_body_bytes = max_body_size

    def set_body_timeout(self, timeout: float) -> None:
        """Limit the time for this request's body to `timeout` seconds, instead of the server's minimum rate."""
        self.body_timeout = timeout

    def write_headers(
        self,
        start_line: httputil.RequestStartLine | httputil.ResponseStartLine,
        headers: httputil.HTTPHeaders,
        chunk: bytes | None = None,
    ) -> asyncio.Future[None]:
        """Write the status, the headers and perhaps the first bytes; await the future for back-pressure."""
        if self._connection is None:
            return _closed()
        assert isinstance(start_line, httputil.ResponseStartLine)
        return self._begin(start_line.code, start_line.reason, dict(headers), list(headers.get_all()), chunk)

    def write_head(self, code: int, headers: Mapping[str, str], chunk: bytes | None = None) -> asyncio.Future[None]:
        """`write_headers` for a plain mapping, without building HTTPHeaders; names are written as given."""
        if self._connection is None:
            return _closed()
        return self._begin(code, REASONS[code], headers, headers.items(), chunk)

    def answer(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        """A complete answer: `write_head`, `write` and `finish` in one call, with its own Content-Length."""
        connection, head = self._connection, self.head
        if connection is None:
            return
        plain = code not in BODILESS and len(body) <= COPY_UP_TO and head.start_line.method != "HEAD"
        if not plain or self.headers_written or "Content-Length" in headers or not OWN_HEADERS.isdisjoint(headers):
            self.write_head(code, {**headers, "Content-Length": str(len(body))}, body)
            self.finish()
            return
        self._chunked = False  # headers that were refused may have chosen it
        lines = list(map(": ".join, headers.items()))
        lines.append(f"Content-Length: {len(body)}")
        self._add_connection_lines(lines, connection, "")
        block = _block(code, REASONS[code], lines)
        self.headers_written = self.finished = True
        self._connection = self._close_callback = self.refusal = None
        connection.writer.push(b"%b%b%b" % (block, connection.state.own_headers, body))
        connection.response_finished(self)

    def _begin(
        self,
        code: int,
        reason: str,
        headers: Mapping[str, str],
        pairs: Collection[tuple[str, str]],
        chunk: bytes | None,
    ) -> asyncio.Future[None]:
        connection = self._connection
        assert connection is not None
        if self.headers_written:
            raise httputil.HTTPOutputError("write_headers() called twice")
        self._choose_framing(code, headers.get("Content-Length"))
        lines = [f"{name}: {value}" for name, value in pairs if name not in OWN_HEADERS]
        self._add_connection_lines(lines, connection, headers.get("Connection", ""))
        block = _block(code, reason, lines) + connection.state.own_headers
        self.headers_written = True
        if not chunk:
            self._corked = block
            connection.loop.call_soon(self._uncork)
            return connection.writer.flushed()
        if self.head.start_line.method == "HEAD":
            return connection.writer.send(block)
        return self._send(connection, block, self._framed(chunk))

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        """Write body bytes. The future is done at once while few bytes are unsent, otherwise when those were sent."""
        connection = self._connection
        if connection is None:
            return _closed()
        if self._chunked and chunk and not self._corked:  # a stream that has begun
            return connection.writer.send_chunk(chunk) or connection.writer.done
        self._require_headers(connection)
        if not chunk or self.head.start_line.method == "HEAD":
            return connection.writer.flushed()
        data = self._framed(chunk)
        if self._corked:
            block, self._corked = self._corked, b""
            return self._send(connection, block, data)
        return connection.writer.send(data)

    def chunk_writer(self) -> Callable[[bytes], asyncio.Future[None] | None] | None:
        """`ClientWriter.send_chunk` of the connection; None unless a chunked body has begun.

        Sharp edge: it does not check whether the client disconnected later.
        """
        connection = self._connection
        return connection.writer.send_chunk if connection is not None and self._chunked and not self._corked else None

    def finish(self) -> None:
        """End the answer: the only way to a body that looks complete."""
        connection = self._connection
        if connection is None:
            return
        self._require_headers(connection)
        if self._remaining:
            self.abort()
            raise httputil.HTTPOutputError(f"Tried to write {self._remaining} bytes less than Content-Length")
        last = self._corked + b"0\r\n\r\n" if self._chunked else self._corked
        if last:
            connection.writer.push(last)
        self.finished = True
        self._connection = self._close_callback = self.refusal = None
        connection.response_finished(self)

    # Methods that Tornado does not have.

    def abort(self) -> None:
        """Send what was written, then close without an end, so that the client sees a truncated body."""
        connection = self._connection
        if connection is None:
            return
        self._uncork()
        close_delimited = self.headers_written and not self._chunked and self._remaining is None
        self._connection = self._close_callback = self.refusal = None
        connection.cut(reset=close_delimited)

    def reset(self) -> None:
        """Drop what is unsent and reset the connection, so that no client takes the body for whole."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._close_callback = self.refusal = None
            connection.reset()

    def switch(self, headers: Mapping[str, str]) -> Any:
        """Answer 101 with `headers`, and leave the socket: its `Detached`, or None if the client has disconnected.

        Call it from a task: a callback of the delegate would lose what the client has sent with its head.
        """
        connection = self._connection
        if connection is None:
            return None
        block = _block(101, REASONS[101], [f"{name}: {value}" for name, value in headers.items()])
        self.headers_written = self.finished = True
        self._connection = self._close_callback = self.refusal = None
        return connection.detach(block + connection.state.own_headers)

    def client_left(self, delegate: httputil.HTTPMessageDelegate | None, *, delivered: bool) -> None:
        """Refuse all later writes, and call one of the application's two callbacks. The connection calls this.

        `delegate` is None if the application failed to make one; `delivered`: it received the whole request.
        """
        callback, self._close_callback, self.refusal = self._close_callback, None, None
        self._connection = None
        if not delivered:
            callback = delegate.on_connection_close if delegate is not None else None
        if callback is not None and not self.finished:
            try:
                callback()
            except Exception:  # the application's edge
                log.exception("Uncaught exception in on_connection_close")

    # Framing.

    def _require_headers(self, connection: Carrier) -> None:
        if not self.headers_written:
            # Tornado calls this after write_headers refused its headers; without an end the client would wait forever.
            connection.fail(self)
            raise httputil.HTTPOutputError("The body comes after write_headers()")

    def _choose_framing(self, code: int, length: str | None) -> None:
        if self.head.start_line.method == "HEAD" or code in BODILESS:
            self._remaining = 0
        elif length is not None:
            if not length.isascii() or not length.isdecimal():
                raise httputil.HTTPOutputError(f"Content-Length must be a number, not {length!r}")
            self._remaining = int(length)
        elif self.head.start_line.version == "HTTP/1.1":
            self._chunked = True
        else:
            self.no_keep_alive = True  # HTTP/1.0 without a length: the body ends where the connection does

    def _add_connection_lines(self, lines: list[str], connection: Carrier, asked: str) -> None:
        asked = asked.lower()
        if self.no_keep_alive or asked == "close" or not connection.can_keep_alive():
            self.no_keep_alive = True
            lines.append("Connection: close")
        elif asked or self.head.start_line.version == "HTTP/1.0":
            lines.append("Connection: keep-alive")
        if self._chunked:
            lines.append("Transfer-Encoding: chunked")

    def _framed(self, chunk: bytes) -> bytes:
        if self._chunked:
            return b"%x\r\n%b\r\n" % (len(chunk), chunk)
        if self._remaining is not None:
            if len(chunk) > self._remaining:
                self.abort()
                raise httputil.HTTPOutputError("Tried to write more data than Content-Length")
            self._remaining -= len(chunk)
        return chunk

    def _send(self, connection: Carrier, block: bytes, data: bytes) -> asyncio.Future[None]:
        if len(data) <= COPY_UP_TO:
            return connection.writer.send(block + data)
        connection.writer.push(block)
        return connection.writer.send(data)

    def _uncork(self) -> None:
        block, self._corked = self._corked, b""
        if block and self._connection is not None:
            self._connection.writer.push(block)


def _block(code: int, reason: str, lines: list[str]) -> bytes:
    """Status line and headers without the last line break; a line break inside a value is a ValueError."""
    text = "".join([reason, *lines])  # a search for each character takes 0.3 µs less than counts of line breaks
    if "\n" in text or "\r" in text or "\0" in text:
        bad = next((line for line in lines if _line_break.search(line)), reason)
        raise ValueError(f"Illegal characters in header: {bad.split(':', 1)[0]!r}")
    return "\r\n".join((f"HTTP/1.1 {code} {reason}", *lines)).encode("latin-1")


def _closed() -> asyncio.Future[None]:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    future.set_exception(StreamClosedError())
    future.exception()  # mark it as retrieved: a handler may not await its last flush
    return future
