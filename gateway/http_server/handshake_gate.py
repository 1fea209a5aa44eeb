"""Between a socket and TLS while they shake hands: each piece that the client sends waits for a turn.

Without it a client that sends its first byte, gets its turn, and holds the rest back could let thousands of handshakes
be computed at one moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from gateway.http_server.proxy_protocol import feed

PIECE: Final = 16_384  # bytes of one turn: a hello, or a certificate with its chain
RECORD, MESSAGE = 5, 4  # bytes of the heads of a record and of a message in it
CLIENT_HELLO: Final = 1


def is_whole_hello(data: bytes) -> bool:
    """Whether it begins with a record that has the client's first message as a whole."""
    size = int.from_bytes(data[3:RECORD])
    message = data[RECORD : RECORD + size]
    return message[:1] == bytes([CLIENT_HELLO]) and len(message) >= MESSAGE + int.from_bytes(message[1:MESSAGE])


class HandshakeGate(asyncio.BufferedProtocol):
    """Takes the place of the protocol of TLS on `raw`; `waits` asks for a turn, in which `go_on` is called.

    `has_turn`: the first piece is computed at once, if it has a whole hello.
    """

    _buffer = memoryview(bytearray(PIECE))  # of all: each piece is copied before another one is read

    def __init__(self, raw: asyncio.Transport, waits: Callable[[], None], *, has_turn: bool) -> None:
        self._raw = raw
        self._tls = cast(asyncio.BufferedProtocol, raw.get_protocol())
        self._waits = waits
        self._has_turn = has_turn
        self._held = b""
        self._replace(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        self.take(bytes(self._buffer[:nbytes]))

    def take(self, piece: bytes) -> None:
        """What the client has sent."""
        has_turn, self._has_turn = self._has_turn, False
        if has_turn and is_whole_hello(piece):
            feed(self._tls, self._raw, piece)
            return
        self._raw.pause_reading()
        self._held += piece
        self._waits()

    def go_on(self) -> None:
        """Compute what is held; then read on."""
        self._feed()
        self._raw.resume_reading()

    def open(self) -> None:
        """The handshake is over: TLS reads by itself."""
        self._feed()
        self._replace(self._tls)

    def _feed(self) -> None:
        held, self._held = self._held, b""
        feed(self._tls, self._raw, held)

    def _replace(self, protocol: asyncio.BaseProtocol) -> None:
        self._raw.pause_reading()  # uvloop reads on as the protocol of before wanted it
        self._raw.set_protocol(protocol)
        self._raw.resume_reading()

    def eof_received(self) -> bool | None:
        return self._tls.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        self._tls.connection_lost(exc)

    def pause_writing(self) -> None:
        self._tls.pause_writing()

    def resume_writing(self) -> None:
        self._tls.resume_writing()
