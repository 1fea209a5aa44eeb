"""What a connection needs of its server."""

from __future__ import annotations

from typing import Protocol, TypeVar

from tornado.httputil import HTTPServerConnectionDelegate

from gateway.errors import GatewayError
from gateway.http_server.exchange import Refusal
from gateway.http_server.head import RequestHead
from gateway.http_server.server_state import ServerState

C_contra = TypeVar("C_contra", contravariant=True)


class ConnectionOwner(Protocol[C_contra]):
    """The part of the server that its connections, of the type C, use."""

    app: HTTPServerConnectionDelegate
    state: ServerState

    def opened(self, connection: C_contra) -> None: ...

    def closed(self, connection: C_contra) -> None: ...

    def watch(self, connection: C_contra) -> None:
        """Call `abort` when `client_is_gone`, until `unwatch`."""

    def unwatch(self, connection: C_contra) -> None: ...

    def body_awaited(self, connection: C_contra, head: RequestHead) -> bool:
        """The body is still awaited at a sweep; returns whether the connection counts for a forwarded address now."""

    def body_ended(self, connection: C_contra) -> None:
        """The connection counts for its peer again."""

    def error_answer(self, error: GatewayError, refusal: Refusal | None) -> bytes:
        """The answer to a refused request."""
