"""The way out alone: `Upstream` against an aiohttp ClientSession on the same work, interleaved rounds, one core each.

    python benchmarks/micro_upstream.py [--rounds 5] [--seconds 1.0] [--loop uvloop|asyncio] [--tls]

Three kinds of work: JSON calls by 64 callers, 100 event streams with a chunk each 20 ms, and 1,000 idle streams.
The figures are CPU time per call and per chunk, and memory per stream, of the calling process alone; the answering
process (a bare protocol) is pinned to another core. With --tls the peer has a certificate made for the run, which needs
the openssl program. All of it ends within half a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import os
import ssl
import statistics
import subprocess
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final, cast

import aiohttp
import uvloop

from gateway.http_client.upstream import Upstream
from gateway.sse import EventParser

HEADERS: Final = {"Content-Type": "application/json", "Authorization": "Bearer sk-benchmark"}
BODY: Final = b'{"model":"mock","messages":[{"role":"user","content":"' + b"hello " * 80 + b'"}]}'
DOCUMENT: Final = b'{"choices":[{"message":{"content":"' + b"word " * 150 + b'"}}]}'
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: %b\r\nDate: Sat, 21 Nov 2026 14:00:00 GMT\r\nServer: mock\r\n"
JSON: Final = HEAD % b"application/json" + b"Content-Length: %d\r\n\r\n" % len(DOCUMENT) + DOCUMENT
STREAM: Final = HEAD % b"text/event-stream" + b"Transfer-Encoding: chunked\r\n\r\n"
EVENT: Final = b'data: {"choices":[{"index":0,"delta":{"content":"word "}}],"pad":"' + b"x" * 200 + b'"}\n\n'
CHUNK: Final = b"%x\r\n%b\r\n" % (len(EVENT), EVENT)
CALLERS, STREAMS, IDLE = 64, 100, 1000
INTERVAL: Final = 0.02


class Peer(asyncio.Protocol):
    """Answers by path: /json at once, /stream with a chunk per tick, /idle with one chunk and then nothing."""

    streams: set[asyncio.WriteTransport]

    def __init__(self, streams: set[asyncio.WriteTransport]) -> None:
        self.streams = streams

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"POST /json"):
            self.transport.write(JSON)
        elif data.startswith(b"POST /"):
            self.transport.write(STREAM + CHUNK)
            if data.startswith(b"POST /stream"):
                self.streams.add(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.streams.discard(self.transport)


async def answer(ready: Connection, tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    streams: set[asyncio.WriteTransport] = set()
    server = await loop.create_server(lambda: Peer(streams), "127.0.0.1", 0, ssl=tls, backlog=2048)
    ready.send(server.sockets[0].getsockname()[1])
    while True:
        await asyncio.sleep(INTERVAL)
        for stream in tuple(streams):
            stream.write(CHUNK)


def run_peer(core: int, certificate: str, ready: Connection) -> None:
    pin(core)
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificate)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(answer(ready, tls))


class Ours:
    """The gateway's client."""

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        self.url = url
        self.link = Upstream(tls=tls)

    async def call(self) -> bytes:
        async with await self.link.send("POST", self.url + "/json", headers=HEADERS, body=BODY) as answer:
            return await answer.read()

    async def events(self, path: str) -> AsyncGenerator[int]:
        async with await self.link.send("POST", self.url + path, headers=HEADERS, body=BODY) as answer:
            while events := await answer.read_events():
                yield len(events)

    async def close(self) -> None:
        await self.link.close()


class Session:
    """What one would write with aiohttp, its known brakes off."""

    def __init__(self, url: str, tls: ssl.SSLContext | None) -> None:
        self.url = url
        self.session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, ssl=tls or True),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
        )

    async def call(self) -> bytes:
        async with self.session.post(self.url + "/json", headers=HEADERS, data=BODY) as answer:
            return await answer.read()

    async def events(self, path: str) -> AsyncGenerator[int]:
        parser = EventParser()
        async with self.session.post(self.url + path, headers=HEADERS, data=BODY) as answer:
            while chunk := await answer.content.readany():
                yield len(parser.feed(chunk))

    async def close(self) -> None:
        await self.session.close()


Client = Ours | Session


async def json_cost(client: Client, seconds: float) -> float:
    """µs of CPU per call."""
    calls = 0
    end = time.perf_counter() + seconds

    async def caller() -> None:
        nonlocal calls
        while time.perf_counter() < end:
            assert await client.call() == DOCUMENT
            calls += 1

    before = time.process_time()
    await asyncio.gather(*(caller() for _ in range(CALLERS)))
    return (time.process_time() - before) / calls * 1e6


async def chunk_cost(client: Client, seconds: float) -> float:
    """µs of CPU per chunk, each of which arrives alone."""
    chunks = 0

    async def reader() -> None:
        nonlocal chunks
        async with contextlib.aclosing(client.events("/stream")) as events:
            async for count in events:
                chunks += count

    readers = [asyncio.create_task(reader()) for _ in range(STREAMS)]
    await asyncio.sleep(0.3)
    before, chunks = time.process_time(), 0
    await asyncio.sleep(seconds)
    cost = (time.process_time() - before) / chunks * 1e6
    await cancel(readers)
    return cost


async def idle_memory(client: Client, seconds: float) -> float:
    """KiB of memory per stream that waits for its second chunk."""
    opened = 0

    async def reader() -> None:
        nonlocal opened
        async with contextlib.aclosing(client.events("/idle")) as events:
            async for _ in events:
                opened += 1

    async def open_streams(count: int) -> None:
        wanted = opened + count
        readers.extend(asyncio.create_task(reader()) for _ in range(count))
        while opened < wanted:
            await asyncio.sleep(0.01)

    readers: list[asyncio.Task[None]] = []
    await open_streams(100)  # what is paid once
    before = resident()
    for _ in range(IDLE // 100):
        await open_streams(100)
    grown = resident() - before
    await cancel(readers)
    return grown / IDLE / 1024


WORK: Final[dict[str, Callable[[Client, float], Awaitable[float]]]] = {
    "µs per JSON call": json_cost,
    "µs per chunk": chunk_cost,
    "KiB per idle stream": idle_memory,
}


async def cancel(tasks: list[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def measure(kind: str, work: str, seconds: float, url: str, certificate: str) -> float:
    tls = ssl.create_default_context(cafile=certificate) if certificate else None
    client: Client = Ours(url, tls) if kind == "ours" else Session(url, tls)
    try:
        if work == "µs per JSON call":
            await json_cost(client, 0.2)
        return await WORK[work](client, seconds)
    finally:
        await client.close()


def run_client(
    kind: str, work: str, seconds: float, url: str, certificate: str, loop: str, core: int, result: Connection
) -> None:
    pin(core)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        result.send(runner.run(measure(kind, work, seconds, url, certificate)))


@contextlib.contextmanager
def certificate_for_localhost(wanted: bool) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/peer.pem"
        if wanted:
            subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
            make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *subject]
            subprocess.run([*make, "-keyout", path + ".key", "-out", path], check=True, capture_output=True)
            with Path(path).open("a") as pem:
                pem.write(Path(path + ".key").read_text())
        yield path if wanted else ""


def pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    costs: dict[tuple[str, str], list[float]] = {}
    with certificate_for_localhost(options.tls) as certificate:
        here, there = context.Pipe()
        peer = context.Process(target=run_peer, args=(cores[-1], certificate, there), daemon=True)
        peer.start()
        try:
            url = f"{'https' if certificate else 'http'}://127.0.0.1:{here.recv()}"
            for _ in range(options.rounds):
                for work in WORK:
                    for kind in ("ours", "aiohttp"):
                        run = partial(run_client, kind, work, options.seconds, url, certificate, options.loop, cores[0])
                        client = context.Process(target=run, args=(there,), daemon=True)
                        client.start()
                        if not here.poll(10 + 2 * options.seconds):
                            client.kill()
                            raise SystemExit(f"{work}: no result from {kind}")
                        costs.setdefault((work, kind), []).append(here.recv())
                        client.join()
        finally:
            peer.terminate()
            peer.join(5)
    for work in WORK:
        ours, theirs = costs[work, "ours"], costs[work, "aiohttp"]
        ratios = [theirs_once / ours_once for ours_once, theirs_once in zip(ours, theirs, strict=True)]
        print(
            f"{work:20} ours {statistics.median(ours):6.1f} (min {min(ours):.1f}, max {max(ours):.1f})"
            f"   aiohttp {statistics.median(theirs):6.1f} (min {min(theirs):.1f}, max {max(theirs):.1f})"
            f"   ratio {statistics.median(ratios):.2f}"
        )
    print(f"loop {options.loop}{', TLS' if options.tls else ''}, {options.rounds} rounds")


if __name__ == "__main__":
    main()
