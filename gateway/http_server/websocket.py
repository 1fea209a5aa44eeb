"""One WebSocket (RFC 6455) on the socket of a client connection; wsproto reads and writes its frames.

::

    detached = exchange.switch(handshake_headers(headers))
    socket = WebSocket(detached, user, max_message=2**20, max_age=3600.0)
    socket.begin(detached)
    …
    await socket.send(b"text")     # back-pressure, as with an answer

The user is told of whole text messages, one at a time and in order. There is no timer and no task here: the server
calls `sweep` about twice a second. At most one message of at most `max_message` bytes is held. A client that sends many
small frames is read in turns of the event loop, and is not read while it does not read what it is sent.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from typing import Final, Protocol

from wsproto.connection import Connection as Wire
from wsproto.connection import ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from gateway.errors import BadRequest, GatewayError, UpgradeRequired
from gateway.http_server.connection_owner import Detached
from gateway.http_server.owners import Kind
from gateway.http_server.peer import PeerContext, peer_is_gone

EVENTS_PER_TURN: Final = 64  # of the event loop; about a millisecond
PING_EVERY: Final = 30.0  # seconds
DEAD_AFTER: Final = 300.0  # seconds without a byte of the client, which answers pings
REASON_BYTES: Final = 120  # of a close frame
VERSION: Final = "13"
ABNORMAL: Final = 1006  # without a close frame
IDLE: Final = 4008
_KEY: Final = re.compile(r"[A-Za-z0-9+/]{22}==")


class SocketUser(Protocol):
    """What gets the messages of a socket."""

    @property
    def busy(self) -> bool:
        """Whether a message is being answered: the socket is neither idle nor old then."""

    def on_growth(self, size: int) -> None:
        """An unfinished message has `size` bytes now; a GatewayError closes the socket."""

    def on_message(self, text: bytes) -> None:
        """A whole text message."""

    def on_close(self) -> None:
        """The socket is closed, or closing: nothing more can be sent. Called once."""


class WebSocket(asyncio.BufferedProtocol):
    """Call `begin` at once: until then the socket belongs to no protocol."""

    __slots__ = (
        "_ended", "_ended_at", "_is_behind", "_is_held", "_is_paused", "_message", "_opened", "_part_since", "_pinged",
        "_server", "_transport", "_user", "_wire", "_writer", "close_code", "context", "heard", "max_age", "max_idle",
        "max_message", "rested",
    )  # fmt: skip

    def __init__(
        self, detached: Detached, user: SocketUser, *, max_message: int, max_age: float, max_idle: float = 0.0
    ) -> None:
        self.context: PeerContext = detached.context
        self.max_message = max_message  # bytes
        self.max_age = max_age  # seconds
        self.max_idle = max_idle  # seconds without a message in either direction; 0: any time
        self.close_code = ABNORMAL  # with which it was closed
        self._server = detached.server
        self._transport = detached.transport
        self._writer = detached.writer
        self._user = user
        self._wire = Wire(ConnectionType.SERVER)
        self._message = bytearray()  # of which the end is awaited
        self._part_since = 0.0  # when the first part of a message arrived; 0 while none is awaited
        self._is_behind = self._is_held = self._is_paused = self._ended = False
        self._ended_at = 0.0
        now = self._server.state.now
        self._opened = self.heard = self.rested = self._pinged = now  # `rested`: since when it is idle

    def begin(self, detached: Detached) -> None:
        """Take the socket over, and read what the client has sent already."""
        self._transport.set_protocol(self)
        self._server.switched(detached.connection, self)
        if detached.held:
            self._read(detached.held)

    # asyncio's side -------------------------------------------------------------------------------------------------

    def get_buffer(self, sizehint: int) -> memoryview:
        """The read buffer that all connections share."""
        return self._server.state.read_view

    def buffer_updated(self, nbytes: int) -> None:
        self.heard = self._server.state.now
        self._read(bytes(self._server.state.read_view[:nbytes]))

    def eof_received(self) -> bool:
        self._end()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._end()
        self._writer.fail()
        self._server.closed(self)

    def pause_writing(self) -> None:
        self._writer.paused = True

    def resume_writing(self) -> None:
        self._writer.resume()
        self._set_reading()

    # The user's side ------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return not self._ended

    def send(self, text: bytes) -> asyncio.Future[None]:
        """Send a text message of valid UTF-8; await the future for back-pressure. Nothing happens if it is closed."""
        if self._ended:
            return self._writer.done
        self.rested = self._server.state.now
        return self._writer.send(bytes(self._wire.send(TextMessage(data=text.decode("utf-8", "replace")))))

    def ping(self) -> None:
        """Send a ping."""
        if self._ended:
            return
        self._pinged = self._server.state.now
        self._writer.push(bytes(self._wire.send(Ping())))

    def hold(self, is_held: bool) -> None:
        """Take no messages, or take them again: the user has enough of them."""
        if self._is_held is is_held or self._ended:
            return
        self._is_held = is_held
        if is_held:
            self._set_reading()
        elif not self._is_behind:  # otherwise `_go_on` is called
            self._is_behind = True
            asyncio.get_running_loop().call_soon(self._go_on)

    def answered(self) -> None:
        """A message was answered: the socket is idle from now on, or closes."""
        state = self._server.state
        self.rested = state.now
        if state.draining or not state.keeps_alive:
            self.close(CloseReason.GOING_AWAY, "the gateway stops")

    def close(self, code: int, reason: str) -> None:
        """Send a close frame and FIN; what the client still sends is dropped."""
        if self._ended:
            return
        self.close_code = code
        if self._wire.state in (ConnectionState.OPEN, ConnectionState.REMOTE_CLOSING):
            self._writer.push(bytes(self._wire.send(CloseConnection(code=code, reason=reason[:REASON_BYTES]))))
        self._end()
        if self._transport.is_closing() or not self._transport.can_write_eof():
            self._transport.close()
            return
        self._set_reading()
        try:
            self._transport.write_eof()  # a close with unread bytes would send RST, and the client lose the frame
        except OSError:  # asyncio raises it if the client has reset the connection
            self._transport.close()

    # The server's side ----------------------------------------------------------------------------------------------

    @property
    def waiting_since(self) -> float | None:
        """Since when it is idle, or closing; None while a message arrives or is answered."""
        if self._ended:
            return self._ended_at
        return None if self._user.busy or self._part_since else self.rested

    def displace(self) -> Kind:
        """Close at once for another connection."""
        self.abort()
        return "idle"

    def refuse(self, error: GatewayError) -> None:
        """Close for an error."""
        self.close(CloseReason.TRY_AGAIN_LATER, error.message)

    def close_if_idle(self, since: float) -> None:
        """Close if the socket has been idle since `since`, as the gateway stops."""
        waiting = self.waiting_since
        if waiting is not None and waiting <= since:
            self.close(CloseReason.GOING_AWAY, "the gateway stops")

    def abort(self) -> None:
        """Close at once; unsent bytes are dropped."""
        self._end()
        self._transport.abort()

    def client_is_gone(self) -> bool:
        """Whether the client left while reading was paused."""
        sock = self._transport.get_extra_info("socket")
        return sock is not None and peer_is_gone(sock)

    def sweep(self, now: float) -> None:
        """Enforce the time limits, and send pings."""
        limits = self._server.state.limits
        if self._writer.stalled(self._transport.get_write_buffer_size(), now, limits.write_timeout):
            self.abort()
        elif self._ended:
            if now - self._ended_at > limits.linger_timeout:
                self._transport.abort()
        elif self._part_since and now - self._part_since > limits.body_total_timeout:
            self.close(CloseReason.POLICY_VIOLATION, "the message did not arrive in time")
        elif now - self.heard > DEAD_AFTER:
            self.abort()
        elif now - self._opened > self.max_age and not self._user.busy:
            self.close(CloseReason.NORMAL_CLOSURE, "open for the longest time")
        elif self.max_idle and not self._user.busy and now - self.rested > self.max_idle:
            self.close(IDLE, "idle for too long")
        elif now - self._pinged > PING_EVERY:
            self.ping()

    # Reading --------------------------------------------------------------------------------------------------------

    def _read(self, data: bytes) -> None:
        if not self._ended:
            self._wire.receive_data(data)
            self._take_events()

    def _take_events(self) -> None:
        """Take what was received, in turns that are short enough for the other connections."""
        self._is_behind = False
        if self._has_enough():
            self._set_reading()
            return
        for number, event in enumerate(self._wire.events(), start=1):
            self._take(event)
            if self._ended:
                return
            if self._has_enough():
                break
            if number == EVENTS_PER_TURN:
                self._is_behind = True
                asyncio.get_running_loop().call_soon(self._go_on)
                break
        self._set_reading()

    def _has_enough(self) -> bool:
        return self._is_held

    def _go_on(self) -> None:
        if not self._ended:
            self._take_events()

    def _set_reading(self) -> None:
        """Read, unless there is more to do than can be done, or the client does not read."""
        paused = not self._ended and (self._is_behind or self._is_held or self._writer.paused)
        if paused is self._is_paused or self._transport.is_closing():
            return
        self._is_paused = paused
        if paused:
            self._transport.pause_reading()
            self._server.watch(self)
        else:
            self._transport.resume_reading()
            self._server.unwatch(self)

    def _take(self, event: Event) -> None:
        if isinstance(event, TextMessage):
            self._take_part(event)
        elif isinstance(event, Ping):
            self._writer.push(bytes(self._wire.send(event.response())))
        elif isinstance(event, CloseConnection):
            # The client's own code comes back to it; wsproto's is that of a fault in its frames.
            code, reason = event.code, event.reason or ""
            self.close(code, reason)
        elif isinstance(event, BytesMessage):
            self.close(CloseReason.UNSUPPORTED_DATA, "only text is taken")

    def _take_part(self, event: Message[str]) -> None:
        message = self._message
        if event.data:
            message += event.data.encode()
        if len(message) > self.max_message:
            self.close(CloseReason.MESSAGE_TOO_BIG, f"a message has at most {self.max_message} bytes")
            return
        if not event.message_finished:
            self._part_since = self._part_since or self._server.state.now
            try:
                self._user.on_growth(len(message))
            except GatewayError as error:
                self.close(CloseReason.TRY_AGAIN_LATER, error.message)
            return
        self._message, self._part_since = bytearray(), 0.0
        self.rested = self._server.state.now
        self._user.on_message(bytes(message))

    def _end(self) -> None:
        if not self._ended:
            self._ended, self._ended_at = True, self._server.state.now
            self._message, self._part_since = bytearray(), 0.0
            self._user.on_close()


def is_handshake(headers: Mapping[str, str]) -> bool:
    """Whether a GET asks for a WebSocket; also if a proxy has removed its header `Upgrade`."""
    return "websocket" in headers.get("Upgrade", "").lower() or "Sec-Websocket-Key" in headers


def handshake_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers of the answer to a handshake; BadRequest or UpgradeRequired if it is not a valid one."""
    connection = headers.get("Connection", "").lower().split(",")
    if headers.get("Upgrade", "").lower() != "websocket" or "upgrade" not in map(str.strip, connection):
        raise UpgradeRequired("The headers 'Upgrade: websocket' and 'Connection: Upgrade' did not arrive")
    if headers.get("Sec-Websocket-Version") != VERSION:
        raise UpgradeRequired(f"The WebSocket version must be {VERSION}")
    key = headers.get("Sec-Websocket-Key", "")
    if not _KEY.fullmatch(key):
        raise BadRequest("The header 'Sec-WebSocket-Key' is not 16 bytes as base64")
    accept = generate_accept_token(key.encode()).decode()
    return {"Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Accept": accept}
