"""Callers over HTTP: the bytes of a request, and what came back until the connection ended.

The worker's side is the gateway's own server, from its parser to the authentication, on connections of the network.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from gateway.http_server.server import HTTPServer
from gateway.runtime.gateway import Gateway
from tests.simulation.processes import Process

if TYPE_CHECKING:
    from tests.simulation.network import Network

PATIENCE = 300.0  # seconds


def serve(network: Network, process: Process, gateway: Gateway) -> None:
    """Serve HTTP at the address of a worker."""
    server = HTTPServer(gateway.application())
    server._loop = network.loop
    server.state.start(network.loop)
    network.listen(process.name, server._new_protocol, process)


class Reply(asyncio.Protocol):
    """One request on a connection of its own, and its answer as far as it has come."""

    def __init__(self, request: bytes) -> None:
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.left = False
        self._request, self._received = request, b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.left:
            self._received += data

    def connection_lost(self, error: Exception | None) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def leave(self) -> None:
        """The caller closes the connection."""
        if not self.ended.done():
            self.left = True
            self._transport.close()

    @property
    def status(self) -> int:
        """0 if no head has come."""
        return int(self._received[9:12]) if b"\r\n\r\n" in self._received else 0

    def header(self, name: str) -> str:
        """A header of the answer, or nothing."""
        head = self._received.partition(b"\r\n\r\n")[0].decode("latin-1")
        found = (line.partition(": ") for line in head.split("\r\n")[1:])
        return next((value for known, _, value in found if known.lower() == name), "")

    def body(self) -> tuple[bytes, bool]:
        """The body as far as it has come, and whether that is all of it."""
        _, _, rest = self._received.partition(b"\r\n\r\n")
        if self.header("transfer-encoding") != "chunked":
            return rest, bool(self.status) and len(rest) == int(self.header("content-length") or -1)
        body = b""
        while True:
            size, found, rest = rest.partition(b"\r\n")
            length = int(size, 16) if found else -1
            if not found or (length and len(rest) < length + 2):
                return body, False
            if not length:
                return body, True
            body, rest = body + rest[:length], rest[length + 2 :]


async def ask(
    network: Network, address: str, path: str, token: str, content: bytes, *, name: str, leaves_after: float | None
) -> Reply | None:
    """Send a request and wait for the end of its answer; None if the address takes no connection."""
    head = [f"POST {path} HTTP/1.1", "Host: world", f"Authorization: Bearer {token}", "Connection: close"]
    head += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
    head += [f"Idempotency-Key: {name}"] if name else []
    reply = Reply("\r\n".join(head).encode() + b"\r\n\r\n" + content)
    try:
        await network.connect(lambda: reply, address)
    except ConnectionRefusedError:
        return None
    await asyncio.wait([reply.ended], timeout=PATIENCE if leaves_after is None else leaves_after)
    reply.leave()
    return reply
