"""A TCP proxy that misbehaves on command, between any two of client, gateway, upstream and store.

::

    async with ChaosProxy(port_or_socket) as proxy:     # proxy.port
        proxy.delay = 0.2                               # seconds before each piece of an answer
        proxy.black_hole = True                         # takes connections and bytes, passes on none
        proxy.lose_replies = True                       # requests arrive, answers do not
        proxy.deafen = 0.14                             # the share of pieces of answers that are lost
        proxy.deafen_each = 15_000                      # bytes of answers between two losses, in the mean
        proxy.cut_after = 1000                          # bytes of answers, then both sides are reset
        proxy.drop()                                    # reset every connection now

Settings hold for connections that are open, too. After a piece that `deafen` took, a connection delivers no more
answers, for TCP cannot lose a piece from the middle. Sharp edge: what a black hole or a lost reply has taken is never
delivered later, so lifting either resets the connections it touched, as a network that comes back would.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
from pathlib import Path
from types import TracebackType

PIECE = 1 << 16


class _Link:
    """One connection and its counterpart."""

    def __init__(self, near: asyncio.StreamWriter, far: asyncio.StreamWriter) -> None:
        self.near, self.far = near, far
        self.answered = 0  # bytes
        self.holed = False  # something of it is lost
        self.deaf = False  # its answers are lost from now on

    def reset(self) -> None:
        for writer in (self.near, self.far):
            writer.transport.abort()


class ChaosProxy:
    """Listens on loopback and passes on to `target`, a port of loopback or a unix socket; an async context manager."""

    def __init__(self, target: int | Path) -> None:
        self.target = target
        self.port = 0
        self.delay = 0.0
        self.deafen = 0.0
        self.deafen_each = 0  # unlike `deafen`, it does not depend on how a busy machine cuts the answers into pieces
        self.deafened = 0  # connections
        self.random = random.Random(14)
        self.cut_after: int | None = None
        self.connections = 0  # ever made
        self._black_hole = self._lose_replies = False
        self._links: set[_Link] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    def _chance_of_loss(self, piece: bytes) -> float:
        return 1 - math.exp(-len(piece) / self.deafen_each) if self.deafen_each else self.deafen

    @property
    def black_hole(self) -> bool:
        return self._black_hole

    @black_hole.setter
    def black_hole(self, on: bool) -> None:
        self._black_hole = on
        self._forget_holed(lifted=not on)

    @property
    def lose_replies(self) -> bool:
        return self._lose_replies

    @lose_replies.setter
    def lose_replies(self, on: bool) -> None:
        self._lose_replies = on
        self._forget_holed(lifted=not on)

    def _forget_holed(self, *, lifted: bool) -> None:
        for link in [link for link in self._links if lifted and link.holed]:
            link.reset()

    def drop(self) -> None:
        """Reset every connection."""
        for link in list(self._links):
            link.reset()

    async def __aenter__(self) -> ChaosProxy:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.drop()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        try:
            far_reader, far_writer = await self._connect()
        except OSError:
            writer.transport.abort()
            return
        link = _Link(writer, far_writer)
        self._links.add(link)
        try:
            await asyncio.gather(
                self._pump(link, reader, far_writer, answers=False), self._pump(link, far_reader, writer, answers=True)
            )
        finally:
            link.reset()
            self._links.discard(link)

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self.target, Path):
            return await asyncio.open_unix_connection(self.target)
        return await asyncio.open_connection("127.0.0.1", self.target)

    async def _pump(
        self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool
    ) -> None:
        """Pass on one direction; the end of one side is the end of both."""
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(PIECE):
                if answers and self.delay:
                    await asyncio.sleep(self.delay)
                if answers and not link.deaf and self.random.random() < self._chance_of_loss(piece):
                    link.deaf = True
                    self.deafened += 1
                if self._black_hole or (answers and link.deaf) or (answers and self._lose_replies):
                    link.holed = True
                    continue
                if answers and self.cut_after is not None and link.answered + len(piece) >= self.cut_after:
                    writer.write(piece[: max(0, self.cut_after - link.answered)])
                    await asyncio.sleep(0)  # to the kernel, before the reset
                    break
                link.answered += len(piece) * answers
                writer.write(piece)
                await writer.drain()
        link.reset()
