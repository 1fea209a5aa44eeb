"""Repeatable commands: which ones they are, and one result from several copies of one of them.

A command is repeatable if its second execution changes nothing: a read, or a script that recognises what it did before,
such as an admission or a settlement by its request id. Where its reply goes has the attribute `repeatable` then. Such a
command is sent again on another connection when its reply is late or its connection was lost, as often as the time
allows. All other commands whose reply is lost fail, and only their caller may repeat them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store.connection import GRACE, ReplyTo

#: Reads of few bytes, which are repeatable wherever they are called.
READS = frozenset(
    [
        *("GET", "EXISTS", "TIME", "TYPE", "PEXPIRETIME", "HGET", "HMGET", "SISMEMBER", "SCARD", "ZCARD", "ZMSCORE"),
        *("SSCAN", "HSCAN", "ZRANGE", "XRANGE", "XREVRANGE"),
    ]
)


class RepeatableCall(asyncio.Future[Any]):
    """The future of a repeatable command."""

    repeatable = True


class ResentReply:
    """Takes the replies to all copies of one command and passes the first one on.

    It fails `GRACE` after `deadline` (loop time), because a late loop may not have read the reply yet, or when no copy
    is left that could be answered. The fate of the command is then unknown: an earlier copy may have been executed.
    """

    __slots__ = ("_copies", "_ended", "_losses", "_on_result", "_reply", "_timer")

    repeatable = True

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reply: ReplyTo,
        *,
        deadline: float,
        on_result: Callable[[], None] = lambda: None,
    ) -> None:
        self._reply = reply
        self._on_result = on_result
        self._copies = 1
        self._losses = 0
        self._ended = False
        self._timer = loop.call_at(deadline, self._give_grace, loop)

    def add_copy(self) -> None:
        """Another copy is being sent."""
        self._copies += 1

    def drop_copy(self) -> bool:
        """A copy was lost; whether another one may still be answered."""
        if self._copies > 1:
            self._copies -= 1
            return True
        return False

    def lose(self) -> int:
        """A connection was lost in place of the reply; how often that has happened."""
        self._losses += 1
        return self._losses

    def done(self) -> bool:
        """Whether the reply is no longer needed."""
        return self._ended or self._reply.done()

    def set_result(self, result: Any) -> None:
        """Pass the reply to the first answered copy on."""
        if self._end():
            self._on_result()
            self._reply.set_result(result)

    def set_exception(self, exception: Exception) -> None:
        """Pass an error reply on; an unavailable server counts only when no other copy is left."""
        if isinstance(exception, StoreUnavailable):
            if self.drop_copy():
                return
            exception = StoreUnavailable(detail=exception.detail, fate=StoreFate.UNKNOWN)
        if self._end():
            self._reply.set_exception(exception)

    def _give_grace(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(GRACE, self._expire)

    def _expire(self) -> None:
        if self._end():
            self._reply.set_exception(StoreUnavailable(detail="no reply to any copy", fate=StoreFate.UNKNOWN))

    def _end(self) -> bool:
        """Whether this call has ended it."""
        if self._ended:
            return False
        self._ended = True
        self._timer.cancel()
        return not self._reply.done()
