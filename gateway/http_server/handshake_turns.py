"""The turns of TLS handshakes: few at a time, and those of all addresses in turn.

The cryptography of one takes 1 ms of the event loop, with an RSA key 1.4 ms. Thousands may arrive at once, all from one
address; the streams of other callers go on between the turns, and another address waits for one step of each address
at most. The further steps of a handshake cost less as a rule, and are counted by their time.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Final

from gateway.http_server.client_address import network_of
from gateway.http_server.handshake import Handshake

AT_ONCE: Final = 2  # handshakes in one turn
STEP: Final = 0.001  # seconds of a further step that count as much as a handshake
LEAST: Final = 0.25  # as what part of a handshake each further step counts
PAUSE: Final = 0.002  # seconds between two turns


class HandshakeTurns:
    """Of one server. What waits is bounded by the number of connections."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Handshake]] = {}  # by address, the next one first
        self._is_running = False

    def add(self, handshake: Handshake) -> None:
        """Call its `shake` in its turn; one that has begun comes before others of its address."""
        queue = self._waiting.setdefault(network_of(handshake.context.remote_ip), deque())
        queue.appendleft(handshake) if handshake.has_begun else queue.append(handshake)
        if not self._is_running:
            self._is_running = True
            asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        begun = 0.0
        while begun < AT_ONCE:
            if not self._waiting:
                self._is_running = False
                return
            begun += self._begin_next()
        asyncio.get_running_loop().call_later(PAUSE, self._turn)

    def _begin_next(self) -> float:
        """Begin one of the next address, or go on with it; the address then waits for the others.

        As how many handshakes it counts: 0 if it has ended meanwhile.
        """
        address = next(iter(self._waiting))
        queue = self._waiting.pop(address)
        handshake = queue.popleft()
        if queue:
            self._waiting[address] = queue
        if handshake.is_over:
            return 0.0
        is_further, since = handshake.has_begun, time.monotonic()
        handshake.shake()
        return max((time.monotonic() - since) / STEP, LEAST) if is_further else 1.0
