"""The commands of a link that wait for a connection: limited in number, in bytes and in time."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable

from gateway.store.connection import MAX_WAITING_BYTES, Queued, ReplyTo


class CommandQueue:
    """Open for a limited time after a connection was lost; commands come in while it is open."""

    def __init__(self) -> None:
        self._commands: deque[Queued] = deque()
        self._bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self._commands)

    @property
    def is_open(self) -> bool:
        """Whether commands may wait."""
        return self._timer is not None

    def open(self, seconds: float, on_end: Callable[[], None]) -> None:
        """Let commands wait; `on_end` is called after so many seconds, unless `take` was called before."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, on_end)

    def put(self, command: bytes, reply: ReplyTo, at: float, *, may_move: bool, most: int) -> bool:
        """Add a command that was called at the loop time `at`; False if too many commands or bytes wait."""
        if len(self._commands) >= most or self._bytes >= MAX_WAITING_BYTES:
            return False
        self._commands.append((command, reply, at, may_move))
        self._bytes += len(command)
        return True

    def take(self) -> deque[Queued]:
        """Close it and return the commands, oldest first."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        commands, self._commands, self._bytes = self._commands, deque(), 0
        return commands
