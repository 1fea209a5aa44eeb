"""The transport of a connection with TLS: it behaves like that of a socket, where those of asyncio and uvloop do not.

Their transports count only what is not encrypted yet, give a close a limited time in which unsent data are lost, and
have no half-close. Sharp edge: `write_eof` sends nothing. The client knows the end of an answer by its length, and the
connection reads on and closes as it does after a FIN.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final

LOOK_EVERY: Final = 0.25  # seconds between two looks whether everything is sent, before a close


class TlsTransport(asyncio.Transport):
    """`inner` encrypts, and `below` has the socket."""

    def __init__(self, inner: asyncio.Transport, below: asyncio.Transport) -> None:
        super().__init__()
        self._inner = inner
        self._below = below
        self._closes = False
        self.write = inner.write  # type: ignore[method-assign] # without a further call for each piece
        self.set_protocol = inner.set_protocol  # type: ignore[method-assign]
        self.pause_reading = inner.pause_reading  # type: ignore[method-assign]
        self.resume_reading = inner.resume_reading  # type: ignore[method-assign]
        self.set_write_buffer_limits = inner.set_write_buffer_limits  # type: ignore[method-assign]

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._inner.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that the system has not taken yet; those below are encrypted, a few more."""
        return self._inner.get_write_buffer_size() + self._below.get_write_buffer_size()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        """Nothing more is written; see above."""

    def is_closing(self) -> bool:
        return self._closes or self._inner.is_closing()

    def close(self) -> None:
        """Close when everything is sent. The connection's limits hold meanwhile."""
        self._closes = True
        self._close_when_sent(0.0)  # uvloop sends at the end of a turn

    def _close_when_sent(self, pause: float) -> None:
        if self._inner.is_closing():
            return
        if self.get_write_buffer_size():
            asyncio.get_running_loop().call_later(pause, self._close_when_sent, LOOK_EVERY)
        else:
            self._inner.close()

    def abort(self) -> None:
        self._closes = True
        self._inner.abort()
