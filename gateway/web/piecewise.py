"""Answers that are sent in pieces, as fast as the client takes them.

A piece is asked for when the one before is on its way, so that an answer of any length needs the memory of one piece.
The work ends when the client leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing
from time import monotonic
from typing import cast

from tornado.iostream import StreamClosedError
from tornado.web import RequestHandler

from gateway.http_server.exchange import Exchange
from gateway.web import late_answers
from gateway.web.places import Places

MOST_OF_ONE = 4  # files that one person or token gets at the same time
PIECE = 100_000  # bytes: a slow client takes each of them in time
PIECE_WITHIN = 60.0  # seconds in which a client takes a piece of a file

#: Raises if the rights of the reader have ended.
Check = Callable[[], Awaitable[object]]


class PieceSender:
    """Sends the body of one answer. `on_connection_close` of its handler calls `client_left`."""

    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler
        self._sending: asyncio.Future[None] | None = None

    async def send(
        self, pieces: AsyncGenerator[bytes], *, within: float | None = None, check: Check | None = None
    ) -> bool:
        """Write and close the pieces. False if the client has left; an error of `pieces` and of `check` is raised.

        A client that does not take a piece `within` so many seconds is cut, as if it had left. `check` is called before
        a piece, if its last call was some seconds before.
        """
        self._sending = asyncio.ensure_future(self._write(pieces, within, check))
        await asyncio.wait({self._sending})
        if self._sending.cancelled():
            return False
        try:
            self._sending.result()
        except StreamClosedError:
            return False
        return True

    def client_left(self) -> None:
        """End the work."""
        if self._sending is not None:
            self._sending.cancel()

    def cut(self) -> None:
        """Reset the connection, so that no client takes the body for whole: without chunks its end is a plain close."""
        cast(Exchange, self._handler.request.connection).reset()

    async def _write(self, pieces: AsyncGenerator[bytes], within: float | None, check: Check | None) -> None:
        async with aclosing(pieces):
            if self._handler.request.method == "HEAD":
                await self._handler.flush()  # the headers; the length is not known
                return
            checked = monotonic()
            async for piece in pieces:
                if check is not None and monotonic() - checked >= late_answers.EVERY:
                    await check()
                    checked = monotonic()
                self._handler.write(piece)
                await self._flush(within)

    async def _flush(self, within: float | None) -> None:
        try:
            async with asyncio.timeout(within):
                await self._handler.flush()
        except TimeoutError:
            self.cut()
            raise StreamClosedError from None


async def pieces_of(content: bytes) -> AsyncGenerator[bytes]:
    """The content of a file that is made already, in pieces."""
    for start in range(0, len(content), PIECE):
        yield content[start : start + PIECE]


class RunningDownloads:
    """The files that a process sends now, counted by who gets them."""

    def __init__(self) -> None:
        self._places = Places()

    def __len__(self) -> int:
        return len(self._places)

    def place(self, who: str) -> AbstractContextManager[None]:
        """Count a file while it is sent; TooManyRequests."""
        refusal = f"You have {MOST_OF_ONE} downloads running; wait for one of them"
        return self._places.place(who, most=MOST_OF_ONE, refusal=refusal)
