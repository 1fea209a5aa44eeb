"""What a connection needs of its server, and the server of a connection."""

from __future__ import annotations

import asyncio
from typing import NamedTuple, Protocol

from tornado.httputil import HTTPServerConnectionDelegate

from gateway.errors import GatewayError
from gateway.http_server.client_writer import ClientWriter
from gateway.http_server.exchange import Refusal
from gateway.http_server.head import RequestHead
from gateway.http_server.owners import Closable
from gateway.http_server.peer import PeerContext
from gateway.http_server.server_state import ServerState


class OpenConnection(Closable, Protocol):
    """An open connection, of HTTP or of the protocol to which it has switched."""

    context: PeerContext

    def refuse(self, error: GatewayError) -> None:
        """Answer in place of the application and close."""

    def close_if_idle(self, since: float) -> None:
        """Close if the connection has been idle since `since`."""

    def abort(self) -> None:
        """Close at once."""

    def client_is_gone(self) -> bool:
        """Whether the client left while reading was paused."""

    def sweep(self, now: float) -> None:
        """Enforce the time limits."""


class ConnectionOwner(Protocol):
    """The part of the server that its connections use."""

    app: HTTPServerConnectionDelegate
    state: ServerState

    def opened(self, connection: OpenConnection) -> None: ...

    def closed(self, connection: OpenConnection) -> None: ...

    def switched(self, connection: OpenConnection, other: OpenConnection) -> None:
        """`other` has taken over the socket of `connection`."""

    def watch(self, connection: OpenConnection) -> None:
        """Call `abort` when `client_is_gone`, until `unwatch`."""

    def unwatch(self, connection: OpenConnection) -> None: ...

    def body_awaited(self, connection: OpenConnection, head: RequestHead) -> bool:
        """The body is still awaited at a sweep; returns whether the connection counts for a forwarded address now."""

    def body_ended(self, connection: OpenConnection) -> None:
        """The connection counts for its peer again."""

    def error_answer(self, error: GatewayError, refusal: Refusal | None) -> bytes:
        """The answer to a refused request."""


class Detached(NamedTuple):
    """A socket that HTTP has left, for the protocol that takes it over."""

    server: ConnectionOwner
    connection: OpenConnection  # that had it
    transport: asyncio.Transport
    writer: ClientWriter
    context: PeerContext
    held: bytes  # what the client has sent already
