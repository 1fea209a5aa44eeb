"""A server of all four dialects, in a thread of the bench: the worker alone is counted, so it may be slow.

The path tells the dialect. The model's name tells the answer: `mock-20` streams 20 words, any other name is answered
whole. A word is sent when the caller has read the one before it: words at fixed times would arrive together on a busy
machine, and cost less then.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

from benchmarks.dialects.answers import WORD, stream, whole

_SHAPE = re.compile(rb"mock-(\d+)")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_READ_WITHIN = 0.25  # seconds for a caller to read a word
_ENDS = (b"/chat/completions", "chat"), (b"/responses", "responses"), (b"/messages", "messages")


class Upstream:
    """The server; at most one stream at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.port = 0
        self.loop = loop
        self._read = asyncio.Semaphore(0)

    def told(self, piece: bytes) -> None:
        """Take what the caller has read."""
        for _ in range(piece.count(WORD.encode())):
            self.loop.call_soon_threadsafe(self._read.release)

    def begin(self) -> None:
        """A stream begins."""
        self._read = asyncio.Semaphore(0)

    async def word_read(self) -> None:
        """Wait until the caller has read one more word."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._read.acquire(), _READ_WITHIN)


@contextmanager
def dialect_upstream() -> Iterator[Upstream]:
    """Serve for the length of a block."""
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    upstream = Upstream(loop)

    async def serve() -> None:
        server = await asyncio.start_server(partial(_answer_all, upstream), "127.0.0.1", 0)
        upstream.port = server.sockets[0].getsockname()[1]
        ready.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield upstream
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _answer_all(upstream: Upstream, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            await _answer(upstream, writer, head.partition(b"\r\n")[0], body)
    writer.close()


async def _answer(upstream: Upstream, writer: asyncio.StreamWriter, line: bytes, body: bytes) -> None:
    path = line.split(b" ")[1].partition(b"?")[0]
    dialect = next((name for end, name in _ENDS if path.endswith(end)), "gemini")
    shape = _SHAPE.search(path) or _SHAPE.search(body)
    if shape is None:
        content = whole(dialect)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
        writer.write(head + content)
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    upstream.begin()
    for event in stream(dialect, int(shape[1])):
        if event:
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            if WORD.encode() in event:
                await upstream.word_read()
    done = b"data: [DONE]\n\n" if dialect == "chat" else b""
    writer.write((b"%x\r\n%b\r\n" % (len(done), done) if done else b"") + b"0\r\n\r\n")
