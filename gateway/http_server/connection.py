"""One client connection: an asyncio protocol that feeds requests to the application, one at a time and in order.

The connection is always in one Phase. Bytes that the phase cannot use yet wait in its RequestReader. Reading continues
while an answer is produced, so that a disconnect of the client is detected at once: FIN, RST and half-close all count
as a disconnect. There is no timer and no task here: the server calls `sweep` about twice a second, and times are read
from its coarse clock.
"""

from __future__ import annotations

import asyncio
import socket
from dataclasses import dataclass, field
from typing import Final, cast

from tornado.gen import convert_yielded
from tornado.httputil import HTTPMessageDelegate

from gateway.errors import BadRequest, GatewayError, InternalError, RequestTimeout, RequestTooLarge
from gateway.http_server.body_progress import BodyProgress
from gateway.http_server.client_writer import ClientWriter
from gateway.http_server.connection_owner import ConnectionOwner, Detached, OpenConnection
from gateway.http_server.exchange import Exchange
from gateway.http_server.handler_error import handler_error, when_done
from gateway.http_server.head import RequestHead
from gateway.http_server.owners import Kind
from gateway.http_server.peer import PeerContext, disable_nagle, peer_is_gone, reset_on_close
from gateway.http_server.phase import BLOCKED, BODY, CLOSED, FLUSHING, HEAD, LINGERING, PREPARING, RESPONDING, SKIPPING
from gateway.http_server.request_reader import RequestReader
from gateway.http_server.server_state import ServerState

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"


@dataclass(eq=False, repr=False, slots=True)
class Connection(asyncio.BufferedProtocol):
    """Made by HTTPServer for each accepted socket; its `Exchange` and its `RequestReader` call the public methods."""

    _server: ConnectionOwner
    loop: asyncio.AbstractEventLoop
    state: ServerState = field(init=False)
    context: PeerContext = field(init=False)
    writer: ClientWriter = field(init=False)
    _transport: asyncio.Transport = field(init=False)
    _reader: RequestReader = field(init=False)
    _exchange: Exchange | None = None
    _delegate: HTTPMessageDelegate | None = None
    _delivered: bool = False  # whether the delegate saw the whole request
    _continue_owed: bool = False
    _eof: bool = False
    _counts_for_forwarded: bool = False  # in the limit of connections
    _linger_from: int = 0  # bytes received when lingering began
    _body: BodyProgress = field(default_factory=BodyProgress)

    def __post_init__(self) -> None:
        self.state = self._server.state
        self._reader = RequestReader(self, self.state, self.loop)

    # asyncio's side -------------------------------------------------------------------------------------------------

    def connection_made(
        self, transport: asyncio.BaseTransport, announced: str = "", handshake: OpenConnection | None = None
    ) -> None:
        """Set the socket up; `announced` is the client's address, if a proxy has sent it. `handshake`: that of TLS."""
        self._transport = transport = cast(asyncio.Transport, transport)
        self.context = PeerContext(transport, announced) if handshake is None else handshake.context
        if self.socket is not None:
            disable_nagle(self.socket)
        high = self.state.limits.write_high_water
        transport.set_write_buffer_limits(high=high, low=high // 4)
        self.writer = ClientWriter(transport, self.state)
        self._reader.transport = transport
        self._server.opened(self) if handshake is None else self._server.switched(handshake, self)

    def get_buffer(self, sizehint: int) -> memoryview:
        """The read buffer that all connections share: it is emptied before another connection reads."""
        held = self._reader.held
        return self.state.read_view if not held else self.state.read_view[: self._reader.room(len(held))]

    def buffer_updated(self, nbytes: int) -> None:
        reader, state = self._reader, self.state
        reader.received += nbytes
        if reader.held is not None:
            reader.held += state.read_view[:nbytes]
            reader.pause_when_full()
        elif reader.phase is LINGERING:
            if reader.received - self._linger_from > state.limits.linger_bytes:
                self._transport.abort()
        else:
            used = reader.consume(state.read_buffer, nbytes)
            if used < nbytes:
                reader.hold(bytearray(state.read_view[used:nbytes]))

    def eof_received(self) -> bool:
        self._eof = True
        phase = self._reader.phase
        if phase is RESPONDING or (phase is PREPARING and self._reader.parser.complete):
            self.abort()
        elif phase in (PREPARING, BODY, BLOCKED):
            self.refuse(BadRequest("The request body ended before it was complete"))
        elif phase is HEAD and self._reader.parser.started:
            self.refuse(BadRequest("The request ended before it was complete"))
        return False  # close after the written data were sent

    def connection_lost(self, exc: Exception | None) -> None:
        self._reader.phase = CLOSED
        self._end_request()
        self._reader.close()
        self._server.closed(self)

    def pause_writing(self) -> None:
        self.writer.paused = True

    def resume_writing(self) -> None:
        self.writer.resume()
        if self._reader.phase is FLUSHING:
            self._next_request()

    # The exchange's side --------------------------------------------------------------------------------------------

    @property
    def socket(self) -> socket.socket | None:
        """The transport's socket."""
        sock: socket.socket | None = self._transport.get_extra_info("socket")
        return sock

    def can_keep_alive(self) -> bool:
        """Whether this connection can carry another request, asked when the headers of an answer are written."""
        if self._eof or not self.state.keeps_alive:
            return False
        if self._reader.parser.complete:
            return True
        remaining = self._reader.parser.remaining
        small = remaining is not None and remaining <= self.state.limits.skip_bytes
        return small and not self._continue_owed  # owed: the client may send the body or leave it out

    def response_finished(self, exchange: Exchange) -> None:
        """Continue with the next request, or close, as the headers of the finished answer said."""
        if exchange is not self._exchange:
            return
        if self._reader.parser.complete:
            self._next_request()
        elif exchange.no_keep_alive:
            self._exchange = self._delegate = None
            self._linger()
        else:
            self._reader.enter(SKIPPING)

    def cut(self, *, reset: bool) -> None:
        """Close without an end of the body; `reset` if the client would take a FIN for the end."""
        self._end_request()
        if reset and self.socket is not None:
            reset_on_close(self.socket)
            (self._transport.abort if self.context.protocol == "https" else self._close)()  # TLS marks each close
        else:
            self._close_or_linger()

    def reset(self) -> None:
        """Close at once with RST; unsent bytes are dropped."""
        if self.socket is not None:
            reset_on_close(self.socket)
        self.abort()

    def detach(self, block: bytes) -> Detached:
        """Answer with `block`, and leave the socket to another protocol."""
        self._exchange = self._delegate = None
        self.writer.push(block)
        held = bytes(self._reader.held or b"")
        self._reader.drop_held()
        self._reader.phase = CLOSED
        self._reader.close()
        return Detached(self._server, self, self._transport, self.writer, self.context, held)

    def fail(self, exchange: Exchange) -> None:
        """Answer 500, because the application ended without an answer."""
        if exchange is self._exchange:
            self.refuse(InternalError())

    # The server's side ----------------------------------------------------------------------------------------------

    @property
    def idle_since(self) -> float | None:
        """When the connection began to wait for a request; None if a byte of one has arrived, or if it is closing."""
        reader = self._reader
        return reader.since if reader.phase is HEAD and not reader.parser.started and not reader.held else None

    @property
    def waiting_since(self) -> float | None:
        """Since when it has waited for its client; None while a request is served and the client does its part."""
        reader = self._reader
        phase = reader.phase
        if phase in (HEAD, SKIPPING, LINGERING):
            return reader.since if not reader.held else None
        if phase is BODY and self._body.drips(self.state.now, self.state.limits):
            return self._body.began
        return None

    def displace(self) -> Kind:
        """Close at once for another connection."""
        if self.idle_since is None:
            self.abort()
            return "unfinished"
        self._close()
        return "idle"

    def close_if_idle(self, since: float) -> None:
        """Close if the connection has been idle since `since`."""
        idle_since = self.idle_since
        if idle_since is not None and idle_since <= since:
            self._close()

    def abort(self) -> None:
        """Close the connection at once, drop unsent bytes, and notify the handler."""
        self._reader.phase = CLOSED
        self._end_request()
        self._transport.abort()

    def client_is_gone(self) -> bool:
        """Whether the client left while reading was paused."""
        return self.socket is not None and peer_is_gone(self.socket)

    def sweep(self, now: float) -> None:
        """Enforce the time limits."""
        limits = self.state.limits
        waiting = self._transport.get_write_buffer_size()
        if self.writer.stalled(waiting, now, limits.write_timeout):
            self.abort()
            return
        phase, age = self._reader.phase, now - self._reader.since
        if phase is HEAD:
            self._sweep_head(age)
        elif phase is BODY:
            exchange = self._exchange
            assert exchange is not None
            if not self._counts_for_forwarded:
                self._counts_for_forwarded = self._server.body_awaited(self, exchange.head)
            if self._body.late(self._reader.received, now, exchange.body_timeout, limits):
                self.refuse(RequestTimeout())
        elif phase in (SKIPPING, LINGERING) and not waiting and age > limits.linger_timeout:
            self._transport.abort()

    def _sweep_head(self, age: float) -> None:
        limits = self.state.limits
        if self._reader.parser.started:
            if age > limits.header_timeout:
                self.refuse(RequestTimeout("The request headers did not arrive in time"))
        elif age > (limits.keepalive_timeout if self.writer.written else limits.header_timeout):
            self._close()

    # The reader's side ----------------------------------------------------------------------------------------------

    def reading_paused(self, *, paused: bool) -> None:
        """Check for a disconnect of the client while reading is paused."""
        (self._server.watch if paused else self._server.unwatch)(self)

    def begin_request(self, head: RequestHead) -> None:
        exchange = self._exchange = Exchange(self, head, max_body_bytes=self.state.limits.max_body_bytes)
        self._reader.phase = PREPARING
        self._delivered = False
        self._continue_owed = head.expects_continue
        try:
            self._delegate = self._server.app.start_request(self, exchange)
            prepared = self._delegate.headers_received(head.start_line, head.headers)
        except Exception as error:  # the application's edge: its errors must not stop the server
            self.refuse(handler_error(error))
            return
        if prepared is None:
            self._want_body(exchange)
        else:
            when_done(convert_yielded(prepared), exchange, self._want_body, self._failed)

    def _want_body(self, exchange: Exchange) -> None:
        """Called when the application is prepared: read the body, or refuse it before it arrives."""
        if self._exchange is not exchange or self._reader.phase is not PREPARING:
            return  # answered meanwhile
        if self._reader.parser.complete:
            self._request_arrived()
            return
        if exchange.head.content_length > exchange.max_body_bytes:
            self.refuse(RequestTooLarge())
            return
        if self._continue_owed and not self._reader.held:
            self.writer.push(CONTINUE)
        self._continue_owed = False
        self._body.begin(self._reader.received, self.state.now)
        self._reader.enter(BODY)

    def body_arrived(self) -> None:
        parser, exchange, delegate = self._reader.parser, self._exchange, self._delegate
        chunk = parser.take_body()
        if self._reader.phase is SKIPPING:
            if parser.complete:
                self._next_request()
            return
        assert exchange is not None
        assert delegate is not None
        self._body.size += len(chunk)
        if self._body.size > exchange.max_body_bytes:
            raise RequestTooLarge
        if chunk:
            try:
                taken = delegate.data_received(chunk)
            except Exception as error:  # the application's edge
                self.refuse(handler_error(error))
                return
            if taken is not None and not (future := convert_yielded(taken)).done():
                if self._reader.phase is BODY:
                    self._reader.phase = BLOCKED
                    self._body.stop_clock(self.loop.time())
                when_done(future, exchange, self._body_taken, self._failed)
                return
        if self._reader.phase is BODY and parser.complete:
            self._request_arrived()

    def _body_taken(self, exchange: Exchange) -> None:
        if self._exchange is not exchange or self._reader.phase is not BLOCKED:
            return
        if self._reader.parser.complete:
            self._request_arrived()
        else:
            self._body.start_clock(self.loop.time())
            self._reader.enter(BODY)

    def _request_arrived(self) -> None:
        delegate, self._delegate = self._delegate, None
        assert delegate is not None
        self._delivered = True
        self._reader.phase = RESPONDING
        try:
            delegate.finish()
        except Exception as error:  # the application's edge
            self.refuse(handler_error(error))

    def _failed(self, exchange: Exchange, error: BaseException) -> None:
        if self._exchange is exchange:
            self.refuse(handler_error(error))

    def _next_request(self) -> None:
        """Called when the request is read and answered: wait for the next one, or close."""
        exchange = self._exchange
        if self.writer.paused and not self._transport.is_closing():
            self._reader.phase = FLUSHING  # a client that does not read its answers gets no more of them
            return
        self._exchange = self._delegate = None
        if self._counts_for_forwarded:
            self._counts_for_forwarded = False
            self._server.body_ended(self)
        if self._eof or self.state.draining or exchange is None or exchange.no_keep_alive:
            self._close_or_linger()
            return
        self._reader.parser.next_request()
        self._reader.enter(HEAD)

    # Ends -----------------------------------------------------------------------------------------------------------

    def refuse(self, error: GatewayError) -> None:
        """Answer in place of the application and close; only close if its answer has begun."""
        exchange = self._exchange
        answered = exchange is not None and exchange.headers_written
        answer = None if answered else self._server.error_answer(error, exchange.refusal if exchange else None)
        self._end_request()
        if answer is not None:
            self.writer.push(answer)
        self._linger()

    def _end_request(self) -> None:
        """Tell the application that its client disconnected, if it has a request."""
        exchange, self._exchange = self._exchange, None
        delegate, self._delegate = self._delegate, None
        if exchange is not None:
            exchange.client_left(delegate, delivered=self._delivered)
            self.writer.fail()

    def _close(self) -> None:
        """Close after the written data were sent."""
        self._reader.phase = CLOSED
        self._reader.drop_held()
        self._transport.close()

    def _close_or_linger(self) -> None:
        if self._reader.held or self._reader.paused or not self._reader.parser.complete:
            self._linger()
        else:
            self._close()

    def _linger(self) -> None:
        """Send FIN, but read for a while: a close with unread bytes sends RST, and the client may lose the answer."""
        if self._eof or self._transport.is_closing() or not self._transport.can_write_eof():
            self._close()
            return
        self._reader.phase = LINGERING
        self._reader.since = self.state.now
        self._linger_from = self._reader.received
        self._reader.drop_held()
        try:
            self._transport.write_eof()
        except OSError:  # asyncio raises it if the client has reset the connection
            self._close()
