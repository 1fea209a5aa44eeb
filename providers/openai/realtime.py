"""Realtime sessions of the dialect: a WebSocket at `/realtime?model=…`."""

from __future__ import annotations

from urllib.parse import urlencode

from gateway import Realtime, RealtimeRequest, RealtimeSession, Target, dialect_headers

from .._shared.realtime import open_session
from .server import OpenAIServer

#: Headers that a handshake does not have.
OF_BODIES = frozenset({"content-type", "accept"})


class OpenAIRealtime(OpenAIServer, Realtime):
    """`GET /realtime`."""

    async def open_realtime(self, request: RealtimeRequest, target: Target) -> RealtimeSession:
        headers = {name: value for name, value in self.headers.items() if name.lower() not in OF_BODIES}
        return await open_session(
            self.upstream,
            self.realtime_url(target),
            target,
            headers={**headers, **(dialect_headers() or {})},
            hidden=self.hidden,
        )

    def realtime_url(self, target: Target) -> str:
        """The address of a session."""
        return f"{self.base_url}/realtime?{urlencode({'model': target.model})}"
