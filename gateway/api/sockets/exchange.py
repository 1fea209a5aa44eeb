"""The answer to one request of a socket, where a request of HTTP has the answer on its connection.

The pipeline writes to it what it would send by HTTP. The frames of an event stream become text messages, one per event;
an error before the first one becomes an event `error` with its status. Headers of an answer are not sent, except those
of an error, inside its event. The end of an answer is not the end of the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from gateway.errors import GatewayError, InternalError
from gateway.http_server.exchange import Exchange
from gateway.http_server.head import RequestHead
from gateway.http_server.websocket import WebSocket

#: Headers of an error that tell a client what to do.
PASSED_ON = ("x-request-id", "x-should-retry", "x-ratelimit-", "retry-")  # how their names begin
ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "error"})

_encode = msgspec.json.Encoder().encode
_table = msgspec.json.Decoder(dict[str, Raw])


def error_event(status: int, body: bytes, headers: Mapping[str, str]) -> bytes:
    """The event of an error; `body` is that of an answer of HTTP."""
    told = {name.lower(): value for name, value in headers.items() if name.lower().startswith(PASSED_ON)}
    error = _table.decode(body).get("error", Raw(b"null"))
    return _encode({"type": "error", "status": status, "error": error, "headers": told})


class SocketExchange(Exchange):
    """One request; `on_last` gets the name and the data of its last event, `on_end` is called once after that."""

    __slots__ = ("_on_end", "_on_last", "_socket", "has_ended", "status")

    def __init__(
        self,
        socket: WebSocket,
        head: RequestHead,
        loop: asyncio.AbstractEventLoop,
        *,
        on_last: Callable[[str, bytes], None],
        on_end: Callable[[], None],
    ) -> None:
        self.head, self.context, self.loop = head, socket.context, loop
        self.no_keep_alive = self.headers_written = self.finished = False
        self.max_body_bytes = 0
        self.body_timeout = self.refusal = self._close_callback = self._connection = None
        self._socket: WebSocket | None = socket
        self._on_last, self._on_end = on_last, on_end
        self.has_ended = False  # its last event was sent
        self.status = 0  # of an error

    def answer(self, code: int, headers: Mapping[str, str], body: bytes) -> None:
        """An error: every other answer is a stream."""
        self.status = code
        if self._socket is not None:
            self._event("error", error_event(code, body, headers))
        self.finish()

    def write_head(self, code: int, headers: Mapping[str, str], chunk: bytes | None = None) -> asyncio.Future[None]:
        self.headers_written = True
        return self.write(chunk or b"")

    def write(self, chunk: bytes) -> asyncio.Future[None]:
        """Send the events of some frames; a frame without an event, which keeps a stream alive, is a ping."""
        sent: asyncio.Future[None] = self.loop.create_future()
        sent.set_result(None)
        if self._socket is None:
            return sent
        for frame in chunk.split(b"\n\n"):
            if frame.startswith(b"event: "):
                line, _, data = frame.partition(b"\n")
                sent = self._event(line[7:].decode(), data.removeprefix(b"data: "))
            elif frame:
                self._socket.ping()
        return sent

    def chunk_writer(self) -> None:
        return None

    def finish(self) -> None:
        """The answer is complete; the socket stays."""
        socket, self._socket = self._socket, None
        if socket is None:
            return
        if not self.has_ended:
            self._socket = socket
            self._event("error", self._cut(InternalError()))
            self._socket = None
        self.finished = True
        self._close_callback = self.refusal = None
        self._on_end()

    def abort(self) -> None:
        """The answer is cut after its last event, which says so."""
        self.finish()

    def reset(self) -> None:
        self.finish()

    def client_left(self, delegate: Any = None, *, delivered: bool = True) -> None:
        """The socket is closed."""
        self._socket = None
        super().client_left(delegate, delivered=delivered)

    def _event(self, name: str, data: bytes) -> asyncio.Future[None]:
        assert self._socket is not None, "it is asked first"
        if name in ENDS:
            self.has_ended = True
            self._on_last(name, data)
        return self._socket.send(data)

    def _cut(self, error: GatewayError) -> bytes:
        return error_event(error.status, error.body(), {})
