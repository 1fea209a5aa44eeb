"""Bytes of a client that no phase of its connection wants yet."""

from __future__ import annotations

import asyncio


class HeldBytes:
    """At most one read buffer of bytes; reading pauses while they fill it."""

    __slots__ = ("_capacity", "_transport", "data", "reading_paused")

    def __init__(self, transport: asyncio.Transport, capacity: int) -> None:
        self.data: bytearray | None = None
        self.reading_paused = False
        self._transport = transport
        self._capacity = capacity

    def room(self) -> int:
        """Bytes that the next read may bring; never 0, which asyncio refuses."""
        return max(1, self._capacity - len(self.data or b""))

    def pause_when_full(self) -> bool:
        """Pause reading when there is no room; True if this call paused it."""
        if self.reading_paused or self.data is None or len(self.data) < self._capacity:
            return False
        self.reading_paused = True
        self._transport.pause_reading()
        return True

    def resume(self) -> bool:
        """Read on; False if reading was not paused."""
        if not self.reading_paused:
            return False
        self.reading_paused = False
        if not self._transport.is_closing():
            self._transport.resume_reading()
        return True
