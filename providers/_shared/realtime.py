"""A realtime session over a WebSocket of the vendor, whose events are those of OpenAI's API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gateway import RealtimeSession, SocketRefused, Target, Upstream
from gateway.errors import UpstreamInvalidResponse
from gateway.plugins.upstream_errors import error_of_answer

if TYPE_CHECKING:  # it loads aiohttp
    from gateway import UpstreamSocket

MAX_EVENT = 16 * 2**20  # bytes of an event of the vendor


class SocketSession(RealtimeSession):
    """Passes events on."""

    __slots__ = ("_socket",)

    def __init__(self, socket: UpstreamSocket) -> None:
        self._socket = socket

    async def send(self, event: bytes) -> None:
        await self._socket.send(event)

    async def receive(self) -> bytes:
        return await self._socket.receive()

    def close(self) -> None:
        self._socket.close()


async def open_session(
    upstream: Upstream, url: str, target: Target, *, headers: Mapping[str, str], hidden: Sequence[str]
) -> SocketSession:
    """The session at `url`; the typed error for a handshake that is refused. No error shows the `hidden` texts."""
    try:
        socket = await upstream.open_socket(url, headers=headers, timeouts=target.timeouts, max_message=MAX_EVENT)
    except SocketRefused as refused:
        if refused.status < 400:
            raise UpstreamInvalidResponse(detail=f"status {refused.status} in place of a WebSocket") from None
        raise error_of_answer(refused.status, refused.headers, refused.body, hidden) from None
    return SocketSession(socket)
