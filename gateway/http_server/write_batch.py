"""Pieces of begun answers that wait for the end of the event loop's turn: first all reading, then all writing.

Two fifths of a write on a loopback go into waking whoever waits for it (by perf), and of several writes in a row only
the first has to; and reading and writing in turns may drive each other out of the caches. With 1,000 streams of 20
chunks a second a chunk took 0.92 to 0.96 of the CPU in six runs of four to seven rounds, and 0.99 to 1.00 in two later
ones; the slowest hundredth came in 0.4 to 0.7 of the time in six of seven.
Sharp edges: what waits here is not sent when the process is killed, so whoever counts what was sent must count in
`on_written`, which is called right before. And it waits for whatever else runs in the turn, so only what comes from a
socket is put here: a provider that computes between two pieces has each of them sent at once.
"""

from __future__ import annotations

import logging
from asyncio import Transport
from collections.abc import Callable
from typing import Final

log = logging.getLogger(__name__)

AT_ONCE: Final = 4_096  # bytes of a piece that does not wait: nothing limits the memory of those that do
MOST: Final = 32  # pieces that wait; about a millisecond's work

Noted = Callable[[], object]


class WriteBatch:
    """What the connections of one server are to write before anybody waits for another event."""

    __slots__ = ("_call_soon", "_pieces")

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._pieces: list[tuple[Transport, bytes, Noted]] = []

    def put(self, transport: Transport, data: bytes, on_written: Noted) -> None:
        """Write `data` soon, after `on_written()`; a connection that is gone by then is only noted for."""
        pieces = self._pieces
        pieces.append((transport, data, on_written))
        if len(pieces) == 1:
            self._call_soon(self.empty)
        elif len(pieces) >= MOST:
            self.empty()

    def empty(self) -> None:
        """Write all now, in the order in which it came; whoever writes past the outbox, or closes, calls this first."""
        if not self._pieces:
            return
        pieces, self._pieces = self._pieces, []
        for transport, data, on_written in pieces:
            try:
                on_written()
                if not transport.is_closing():
                    transport.write(data)
            except Exception:  # of one connection; the others' pieces are to go out
                log.exception("A piece of an answer could not be written")
                transport.abort()
