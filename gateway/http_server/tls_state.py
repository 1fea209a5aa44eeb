"""The TLS of one server: the context of new connections, which a renewed pair replaces. Open ones keep theirs."""

from __future__ import annotations

import asyncio
import ssl

from gateway.http_server.tls_pair import TlsPair, server_context


class TlsState:
    """Made with the pair."""

    def __init__(self, pair: TlsPair) -> None:
        self.pair = pair
        self.context: ssl.SSLContext = server_context(pair)

    async def use(self, pair: TlsPair) -> None:
        """Serve new connections with this pair; the last one if several arrive."""
        self.pair = pair
        context = await asyncio.to_thread(server_context, pair)
        if pair is self.pair:
            self.context = context
