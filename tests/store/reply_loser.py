"""A TCP proxy before a store that resets a connection instead of passing a reply on; it loses whole replies, by number.

::

    async with ReplyLoser(socket) as loser:     # loser.port
        loser.every = 7                         # each seventh reply to a script is lost; 0: none
        loser.of = None                         # each seventh reply to any command

The replies before the lost one are passed on. The replies after it are lost as well, as those of a server that was
killed would be, and commands that the server has not read yet may never be executed.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import AsyncIterator
from pathlib import Path
from types import TracebackType

SCRIPTS = frozenset({"EVALSHA", "EVAL"})
PIECE = 1 << 16
GREETING = frozenset({"HELLO", "AUTH", "SELECT", "INFO"})


class ReplyLoser:
    """Listens on loopback and passes on to `target`, a unix socket; an async context manager."""

    def __init__(self, target: Path) -> None:
        self.target = target
        self.port = 0
        self.every = 0  # the how manieth counted reply is lost
        self.of: frozenset[str] | None = SCRIPTS  # the commands whose replies count; None: all but those of a greeting
        self.lost = 0
        self.unanswered = 0  # commands behind those with a lost reply, on the same connections
        self.connections = 0  # ever made
        self._counted = 0
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._far: set[asyncio.StreamWriter] = set()

    async def __aenter__(self) -> ReplyLoser:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._far):
            writer.transport.abort()  # which ends the task of the connection
        await asyncio.gather(*self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        self.connections += 1
        far_reader, far_writer = await asyncio.open_unix_connection(self.target)
        self._far.add(far_writer)
        names: deque[str] = deque()  # commands without a reply
        sending = asyncio.create_task(_pass_commands(reader, far_writer, names))
        try:
            with contextlib.suppress(ConnectionError):
                await self._pass_replies(far_reader, writer, names)
        finally:
            sending.cancel()
            _reset(writer)
            far_writer.transport.abort()
            self._far.discard(far_writer)

    async def _pass_replies(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: deque[str]
    ) -> None:
        async for replies in values(reader):
            for number, reply in enumerate(replies):
                if self._is_lost(names.popleft() if names and not reply.startswith(b">") else ""):
                    writer.writelines(replies[:number])
                    self.lost += 1
                    self.unanswered += len(names)
                    return
            writer.writelines(replies)

    def _is_lost(self, name: str) -> bool:
        if not self.every or not name or (name in GREETING if self.of is None else name not in self.of):
            return False
        self._counted += 1
        return self._counted % self.every == 0


async def _pass_commands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, names: deque[str]) -> None:
    with contextlib.suppress(ConnectionError):
        async for commands in values(reader):
            names.extend(command.split(b"\r\n", 3)[2].decode().upper() for command in commands)
            writer.writelines(commands)
    writer.transport.abort()


def _reset(writer: asyncio.StreamWriter) -> None:
    """Close with a reset, which the peer gets at once, and not with an end of the stream."""
    sock = writer.get_extra_info("socket")
    if sock.fileno() >= 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def values(reader: asyncio.StreamReader) -> AsyncIterator[list[bytes]]:
    """The commands or replies of the Redis protocol, as they come in."""
    data = b""
    while piece := await reader.read(PIECE):
        data += piece
        found, start = [], 0
        while (end := end_of(data, start)) >= 0:
            found.append(data[start:end])
            start = end
        data = data[start:]
        if found:
            yield found


def end_of(data: bytes, start: int) -> int:
    """Where the value that begins at `start` ends; -1 if it is not complete."""
    line = data.find(b"\r\n", start)
    if line < 0:
        return -1
    kind, end = data[start : start + 1], line + 2
    if kind in b"$=!":
        length = int(data[start + 1 : line])
        end += length + 2 if length >= 0 else 0
        return end if end <= len(data) else -1
    if kind in b"*~>%|":
        for _ in range(int(data[start + 1 : line]) * (2 if kind in b"%|" else 1) + (kind == b"|")):
            if (end := end_of(data, end)) < 0:
                return -1
    return end
