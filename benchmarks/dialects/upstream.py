"""A server of all four dialects, in a thread of the bench: the worker alone is counted, so it may be slow.

The path tells the dialect. The model's name tells the answer as with the mock upstream: `mock-20x10` streams 20 words,
10 ms apart; any other name is answered whole.
"""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from benchmarks.dialects.answers import stream, whole

_SHAPE = re.compile(rb"mock-(\d+)x(\d+)")
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_ENDS = (b"/chat/completions", "chat"), (b"/responses", "responses"), (b"/messages", "messages")


@contextmanager
def dialect_upstream() -> Iterator[int]:
    """Serve for the length of a block; the port."""
    ready = threading.Event()
    loop = asyncio.new_event_loop()
    ports: list[int] = []

    async def serve() -> None:
        server = await asyncio.start_server(_answer_all, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        ready.set()

    def run() -> None:
        loop.run_until_complete(serve())
        loop.run_forever()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    ready.wait()
    try:
        yield ports[0]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


async def _answer_all(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = await reader.readuntil(b"\r\n\r\n")
            found = _LENGTH.search(head)
            body = await reader.readexactly(int(found[1]) if found else 0)
            await _answer(writer, head.partition(b"\r\n")[0], body)
    writer.close()


async def _answer(writer: asyncio.StreamWriter, line: bytes, body: bytes) -> None:
    path = line.split(b" ")[1].partition(b"?")[0]
    dialect = next((name for end, name in _ENDS if path.endswith(end)), "gemini")
    shape = _SHAPE.search(path) or _SHAPE.search(body)
    if shape is None:
        content = whole(dialect)
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(content)
        writer.write(head + content)
        return
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    for event in stream(dialect, int(shape[1])):
        if event:
            writer.write(b"%x\r\n%b\r\n" % (len(event), event))
            await asyncio.sleep(int(shape[2]) / 1000)
    done = b"data: [DONE]\n\n" if dialect == "chat" else b""
    writer.write((b"%x\r\n%b\r\n" % (len(done), done) if done else b"") + b"0\r\n\r\n")
