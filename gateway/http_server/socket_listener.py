"""Accepts on a listening socket without making transports: handshakes begin with the bare socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Any, Final

AGAIN_AFTER: Final = 0.5  # seconds after a failure such as one for lack of descriptors, as with asyncio's own listeners


class SocketListener:
    """Calls `filled` when connections wait; then `accept` returns them one by one, until it has returned None."""

    def __init__(self, sock: socket.socket, filled: Callable[[], None]) -> None:
        sock.setblocking(False)
        self._sock = sock
        self._filled = filled
        self._loop = asyncio.get_running_loop()
        self._is_closed = False
        self._listen()

    def accept(self) -> tuple[socket.socket, Any] | None:
        """The next connection and its address; None if none waits, or if none can be accepted now."""
        try:
            return self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError, InterruptedError):
            self._listen()
        except OSError:
            self._loop.call_later(AGAIN_AFTER, self._listen)
        return None

    def close(self) -> None:
        """Stop, and close the socket."""
        self._is_closed = True
        self._loop.remove_reader(self._sock)
        self._sock.close()

    def _listen(self) -> None:
        if not self._is_closed:
            self._loop.add_reader(self._sock, self._waits)

    def _waits(self) -> None:
        self._loop.remove_reader(self._sock)
        self._filled()
