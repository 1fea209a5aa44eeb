"""Proxies in front of two gateways: nginx itself where it is installed, and small ones with the behaviour of others.

::

    async with small_proxy([8080, 8081]) as url:            # or nginx(folder, [8080, 8081])
        …                                                   # requests to `url`
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from msgspec import Struct

from gateway.testing.ports import free_ports
from tests.polling import until

IDEMPOTENT = frozenset({b"GET", b"HEAD", b"PUT", b"DELETE", b"OPTIONS"})
BAD_GATEWAY = b"HTTP/1.0 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
NGINX = """
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log warn;
events {{}}
http {{
    access_log {folder}/access.log;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    upstream gateways {{
        {servers}
        {upstream}
    }}
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://gateways;
            {location}
        }}
    }}
}}
"""


class Peer(Struct):
    """A gateway as the proxy sees it."""

    port: int
    failed_at: float = float("-inf")


class NginxLike:
    """Round robin over peers, with nginx's `max_fails=1`, its `fail_timeout`, and `proxy_next_upstream error`.

    A peer that failed is left out for `fail_timeout` seconds. A request is given to the next peer if the connection
    was refused, or if it is idempotent and the connection broke. Without a peer that is left, it is answered with 502.
    """

    def __init__(self, ports: Sequence[int], *, fail_timeout: float) -> None:
        self._peers = [Peer(port) for port in ports]
        self._fail_timeout = fail_timeout
        self._turn = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on a connection of its own."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = await _read_request(reader)
            await self._answer(request, writer)
            await writer.drain()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        tried = set[int]()
        while (peer := self._next(tried)) is not None:
            tried.add(peer.port)
            try:
                upstream, sink = await asyncio.open_connection("127.0.0.1", peer.port)
            except OSError:
                peer.failed_at = time.monotonic()
                continue
            async with _closing(sink):
                if await _pass_on(request, upstream, sink, writer):
                    return
            peer.failed_at = time.monotonic()
            if request.partition(b" ")[0] not in IDEMPOTENT:
                break
        writer.write(BAD_GATEWAY)

    def _next(self, tried: set[int]) -> Peer | None:
        self._turn += 1
        for offset in range(len(self._peers)):
            peer = self._peers[(self._turn + offset) % len(self._peers)]
            if peer.port not in tried and time.monotonic() - peer.failed_at > self._fail_timeout:
                return peer
        return None


class Probed:
    """Round robin over the gateways that are ready; a request that fails is not given to another one."""

    def __init__(self, ports: Sequence[int]) -> None:
        self._ready = dict.fromkeys(ports, True)
        self._turn = 0

    def set_ready(self, port: int, is_ready: bool) -> None:
        """What a gateway has said of itself."""
        self._ready[port] = is_ready

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request on a connection of its own."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            request = await _read_request(reader)
            if not await self._answer(request, writer):
                writer.write(BAD_GATEWAY)
            await writer.drain()

    async def _answer(self, request: bytes, writer: asyncio.StreamWriter) -> bool:
        ready = [port for port, is_ready in self._ready.items() if is_ready]
        if not ready:
            return False
        self._turn += 1
        try:
            upstream, sink = await asyncio.open_connection("127.0.0.1", ready[self._turn % len(ready)])
        except OSError:
            return False
        async with _closing(sink):
            return await _pass_on(request, upstream, sink, writer)


async def _read_request(reader: asyncio.StreamReader) -> bytes:
    """A request with a Content-Length, in the form in which nginx sends it on: HTTP/1.0, one for each connection."""
    head = (await reader.readuntil(b"\r\n\r\n"))[:-4]
    first, *lines = head.split(b"\r\n")
    kept = [line for line in lines if not line.lower().startswith((b"connection:", b"keep-alive:"))]
    length = next((int(line.partition(b":")[2]) for line in kept if line.lower().startswith(b"content-length:")), 0)
    body = await reader.readexactly(length)
    return b"\r\n".join([first.replace(b"HTTP/1.1", b"HTTP/1.0"), *kept, b"Connection: close", b"", body])


async def _pass_on(
    request: bytes, upstream: asyncio.StreamReader, sink: asyncio.StreamWriter, writer: asyncio.StreamWriter
) -> bool:
    """Whether an answer began; it is passed on as it comes."""
    begun = False
    with contextlib.suppress(OSError):
        sink.write(request)
        await sink.drain()
        while part := await upstream.read(65_536):
            begun = True
            writer.write(part)
    return begun


@asynccontextmanager
async def small_proxy(ports: Sequence[int], *, fail_timeout: float = 10.0) -> AsyncIterator[str]:
    """The address of a proxy that behaves as nginx's defaults do."""
    async with served(NginxLike(ports, fail_timeout=fail_timeout)) as url:
        yield url


@asynccontextmanager
async def served(proxy: NginxLike | Probed) -> AsyncIterator[str]:
    """The address of the proxy; it ends when it has closed all of its connections."""
    tasks = set[asyncio.Task[None]]()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        task.add_done_callback(tasks.discard)
        async with _closing(writer):
            await proxy.serve(reader, writer)

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    await asyncio.gather(*tasks)


@asynccontextmanager
async def _closing(writer: asyncio.StreamWriter) -> AsyncIterator[None]:
    """Close the connection at the end, and wait until it is closed."""
    try:
        yield
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


def nginx_binary() -> str | None:
    """nginx, if it is installed."""
    return shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


@asynccontextmanager
async def nginx(
    folder: Path, ports: Sequence[int], *, server: str = "", upstream: str = "", location: str = ""
) -> AsyncIterator[str]:
    """The address of nginx with its defaults, but what is given for each server, for the upstream and the location."""
    binary, [port] = nginx_binary(), free_ports(1)
    assert binary is not None
    folder.mkdir()
    servers = "\n        ".join(f"server 127.0.0.1:{gateway} {server};" for gateway in ports)
    text = NGINX.format(folder=folder, port=port, servers=servers, upstream=upstream, location=location)
    (folder / "nginx.conf").write_text(text)
    with (folder / "output").open("wb") as output:
        process = subprocess.Popen(
            [binary, "-p", str(folder), "-c", str(folder / "nginx.conf")], stdout=output, stderr=output
        )
    try:
        await until(lambda: _listens(port))
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait, 10)


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
