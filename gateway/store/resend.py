"""Repeatable commands: which ones they are, and one result from several copies of one of them.

A command is repeatable if its second execution changes nothing: a read, or an admission, whose request id the script
recognises. Where its reply goes has the attribute `repeatable` then. Such a command is sent again on another connection
when its reply is late or its connection was lost. All other commands whose reply is lost fail, and only their caller
may repeat them.
"""

from __future__ import annotations

import asyncio
from typing import Any

from gateway.errors import StoreFate, StoreUnavailable
from gateway.store.connection import ReplyTo


class RepeatableCall(asyncio.Future[Any]):
    """The future of a repeatable command."""

    repeatable = True


class ResentReply:
    """Takes the replies to all copies of one command and passes the first one on.

    It fails at `deadline` (loop time), or when no copy is left that could be answered. The fate of the command is then
    unknown, because an earlier copy may have been executed.
    """

    __slots__ = ("_copies", "_ended", "_reply", "_timer")

    repeatable = True

    def __init__(self, loop: asyncio.AbstractEventLoop, reply: ReplyTo, *, deadline: float) -> None:
        self._reply = reply
        self._copies = 1
        self._ended = False
        self._timer = loop.call_at(deadline, self._expire)

    def add_copy(self) -> None:
        """Another copy is being sent."""
        self._copies += 1

    def drop_copy(self) -> bool:
        """A copy was lost; whether another one may still be answered."""
        if self._copies > 1:
            self._copies -= 1
            return True
        return False

    def done(self) -> bool:
        """Whether the reply is no longer needed."""
        return self._ended or self._reply.done()

    def set_result(self, result: Any) -> None:
        """Pass the reply to the first answered copy on."""
        if self._end():
            self._reply.set_result(result)

    def set_exception(self, exception: Exception) -> None:
        """Pass an error reply on; an unavailable server counts only when no other copy is left."""
        if isinstance(exception, StoreUnavailable):
            if self.drop_copy():
                return
            exception = StoreUnavailable(detail=exception.detail, fate=StoreFate.UNKNOWN)
        if self._end():
            self._reply.set_exception(exception)

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
