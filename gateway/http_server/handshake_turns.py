"""The turns of TLS handshakes: few at a time, and those of all addresses in turn.

The cryptography of one takes 1 ms of the event loop, with an RSA key 1.4 ms. Thousands may arrive at once, all from one
address; the streams of other callers go on between the turns, and another address waits for one handshake of each
address at most.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.http_server.client_address import network_of
from gateway.http_server.handshake import Handshake

AT_ONCE: Final = 2  # handshakes in one turn
PAUSE: Final = 0.002  # seconds between two turns


class HandshakeTurns:
    """Of one server. What waits is bounded by the number of connections."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Handshake]] = {}  # by address, the next one first
        self._is_running = False

    def add(self, handshake: Handshake) -> None:
        """Call its `shake` in its turn."""
        self._waiting.setdefault(network_of(handshake.context.remote_ip), deque()).append(handshake)
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        begun = 0
        while begun < AT_ONCE:
            if not self._waiting:
                self._is_running = False
                return
            begun += self._begin_next()
        asyncio.get_running_loop().call_later(PAUSE, self._turn)

    def _begin_next(self) -> bool:
        """Begin one of the next address, which then waits for the others; False if it has ended meanwhile."""
        address = next(iter(self._waiting))
        queue = self._waiting.pop(address)
        handshake = queue.popleft()
        if queue:
            self._waiting[address] = queue
        if handshake.is_over:
            return False
        handshake.shake()
        return True
