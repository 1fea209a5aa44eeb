"""Messages between the supervisor and a worker, over a socket pair they share.

A message is a name and bytes, length-prefixed. `Channel.receive` is called for each one. `Channel.closed` is called
once when the other side is gone; a worker then knows that its supervisor died.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

import msgspec

from gateway.accounts.pepper import Peppers
from gateway.config.configuration import Configuration
from gateway.http_server.tls_pair import TlsPair

REPORT_EVERY = 1.0  # seconds between reports of a worker's metrics
CUT_WITHIN = 1.0  # seconds for streams that a worker cut to send their last frame
SETTLE_WITHIN = 3.0  # seconds for cut calls to close their upstream and settle

_LENGTH = struct.Struct("!I")


class Message(msgspec.Struct, array_like=True):
    """One message: its name and its payload."""

    name: str
    payload: bytes = b""


class WorkerSpec(msgspec.Struct):
    """The command line of a worker; it has no secrets."""

    number: int
    listen_fd: int
    channel_fd: int


class Briefing(msgspec.Struct, array_like=True):
    """The first message over a worker's channel."""

    peppers: Peppers
    configuration: Configuration
    deployment: str = ""  # of the store; empty before the store was reached for the first time
    socket: str = ""  # of the embedded store
    machine: str = ""  # names the supervisor; its workers share the failures of upstreams
    tls: TlsPair | None = None  # of the port


_decoder = msgspec.msgpack.Decoder(Message)


class Channel(asyncio.Protocol):
    """One end of the pair."""

    def __init__(self, receive: Callable[[Message], None], closed: Callable[[], None]) -> None:
        self._receive = receive
        self._closed = closed
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()

    @classmethod
    async def open(cls, sock: socket.socket, receive: Callable[[Message], None], closed: Callable[[], None]) -> Channel:
        """A channel over a connected socket; the channel closes it."""
        sock.setblocking(False)
        _, channel = await asyncio.get_running_loop().create_connection(lambda: cls(receive, closed), sock=sock)
        return channel

    def send(self, name: str, payload: bytes = b"") -> None:
        """Send one message; dropped if the other side is gone."""
        if self._transport is not None and not self._transport.is_closing():
            raw = msgspec.msgpack.encode(Message(name, payload))
            self._transport.write(_LENGTH.pack(len(raw)) + raw)

    def close(self) -> None:
        """Send what is queued, then close."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if len(self._buffer) < _LENGTH.size + length:
                return
            raw = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
            del self._buffer[: _LENGTH.size + length]
            self._receive(_decoder.decode(raw))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._closed()
