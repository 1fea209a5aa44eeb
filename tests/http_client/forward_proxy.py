"""A forward proxy on loopback: CONNECT and the absolute form, with a log of what it was asked.

::

    async with ForwardProxy(credentials="user:word") as proxy:     # proxy.url, without the credentials
        proxy.refuse = 502                                          # the status of every answer from now on
        proxy.black_hole = True                                     # takes connections and answers nothing
        assert proxy.heads[0].startswith(b"CONNECT localhost:443 ")

The requests on a connection go to the server of the first one; answers are passed on as bytes.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ssl
from collections.abc import Coroutine
from typing import Any
from urllib.parse import urlsplit

from tests.polling import turns


class ForwardProxy:
    """The proxy; an async context manager."""

    def __init__(self, *, credentials: str = "", tls: ssl.SSLContext | None = None) -> None:
        self.heads: list[bytes] = []  # of the requests that it was sent
        self.connections = 0
        self.open = 0  # connections that have not ended
        self.refuse = 0
        self.black_hole = False
        self._expected = b"basic " + base64.b64encode(credentials.encode()) if credentials else b""
        self._tls = tls
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ForwardProxy:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls, backlog=512)
        self.address = f"localhost:{self._server.sockets[0].getsockname()[1]}"
        self.url = f"{'https' if self._tls else 'http'}://{self.address}"
        return self

    async def __aexit__(self, *_: object) -> None:
        await turns()  # connections that are being accepted get their task
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await turns()  # transports are closed in the next turns of the loop

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        self.open += 1
        try:
            await self._connection(reader, writer)
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.transport.abort()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await self._head(reader, writer)
        while self.black_hole and await reader.read(65536):
            pass
        if not head or self.black_hole:
            return
        method, target, _ = head.partition(b"\r\n")[0].decode().split(" ")
        place = urlsplit(f"//{target}" if method == "CONNECT" else target)
        there, out = await asyncio.open_connection(place.hostname, place.port or 80)
        try:
            if method == "CONNECT":
                writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                await either(pass_on(reader, out), pass_on(there, writer))
            else:
                await either(self._pass_requests(head, reader, writer, out), pass_on(there, writer))
        finally:
            out.transport.abort()

    async def _head(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        """The next request's head; empty when it was refused."""
        head = await reader.readuntil(b"\r\n\r\n")
        self.heads.append(head)
        lines = head.lower().split(b"\r\n")
        allowed = not self._expected or b"proxy-authorization: " + self._expected.lower() in lines
        status = self.refuse or (0 if allowed or self.black_hole else 407)
        if not status:
            return head
        body = f"the proxy at {self.address} says no"
        challenge = 'Proxy-Authenticate: Basic realm="p"\r\n' if status == 407 else ""
        refusal = f"HTTP/1.1 {status} No\r\n{challenge}Connection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(f"{refusal}{body}".encode())
        await writer.drain()
        while await reader.read(65536):  # or the answer would be lost in a reset
            pass
        return b""

    async def _pass_requests(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, out: asyncio.StreamWriter
    ) -> None:
        while head:
            method, target, version = head.partition(b"\r\n")[0].split(b" ")
            place = urlsplit(target)
            path = target.removeprefix(place.scheme + b"://" + place.netloc)
            lines = [line for line in head.split(b"\r\n")[1:] if not line.lower().startswith(b"proxy-")]
            out.write(b"\r\n".join([b" ".join([method, path, version]), *lines]))
            await _pass_body(head.lower(), reader, out)
            head = await self._head(reader, writer)


async def _pass_body(head: bytes, reader: asyncio.StreamReader, out: asyncio.StreamWriter) -> None:
    if b"\r\ntransfer-encoding: chunked\r\n" in head:
        size = -1
        while size:
            line = await reader.readuntil(b"\r\n")
            size = int(line, 16)
            out.write(line + await reader.readexactly(size + 2))
            await out.drain()
    elif b"\r\ncontent-length: " in head:
        left = int(head.partition(b"\r\ncontent-length: ")[2].partition(b"\r\n")[0])
        while left:
            piece = await reader.read(min(left, 65536))
            if not piece:
                return
            left -= len(piece)
            out.write(piece)
            await out.drain()


async def pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()


async def either(*ways: Coroutine[Any, Any, None]) -> None:
    """Run both until one ends."""
    tasks = [asyncio.ensure_future(way) for way in ways]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
