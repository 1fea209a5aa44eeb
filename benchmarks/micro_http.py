"""Tornado's own HTTP server against ours: the same bare RequestHandler, interleaved rounds, one core each.

    python benchmarks/micro_http.py [--rounds 5] [--seconds 1.0] [--connections 64] [--loop uvloop|asyncio]

Each server is a process pinned to the first core, the load client (raw sockets, epoll, keep-alive) runs on the last.
Requests per second depend on the machine and its neighbours: read the ratio, which is taken round by round. All of it
ends within half a minute.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import multiprocessing
import os
import select
import signal
import socket
import statistics
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import tornado.httpserver
import uvloop
from tornado.web import Application, RequestHandler

from gateway.http_server.server import HTTPServer

BODY: Final = b'{"model":"mock","messages":[{"role":"user","content":"' + b"hello " * 80 + b'"}]}'
REQUEST: Final = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: application/json\r\n"
    b"Accept-Encoding: gzip, deflate\r\nConnection: keep-alive\r\nContent-Type: application/json\r\n"
    b"User-Agent: OpenAI/Python 3.52.0\r\nX-Stainless-Lang: python\r\nX-Stainless-Arch: x64\r\n"
    b"Authorization: Bearer sk-benchmark\r\nContent-Length: %d\r\n\r\n" % len(BODY)
) + BODY


class Bare(RequestHandler):
    """The least a handler can do with a POST."""

    def post(self) -> None:
        self.set_header("Content-Type", "application/json")
        self.write(b'{"ok":true}')


async def serve(kind: str, ready: Connection) -> None:
    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    app = Application([("/v1/chat/completions", Bare)])
    if kind == "stock":
        sock.listen(1024)
        sock.setblocking(False)
        tornado.httpserver.HTTPServer(app).add_socket(sock)
    else:
        await HTTPServer(app).start(sock)
    ready.send(sock.getsockname()[1])
    await asyncio.Event().wait()


def run_server(kind: str, loop: str, core: int, ready: Connection) -> None:
    pin(core)
    logging.getLogger("tornado.access").setLevel(logging.ERROR)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop if loop == "uvloop" else None) as runner:
        runner.run(serve(kind, ready))


def load(port: int, connections: int, seconds: float) -> float:
    """Answers per second in a closed loop."""
    poll = select.epoll()
    socks: dict[int, socket.socket] = {}
    for _ in range(connections):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        poll.register(sock, select.EPOLLIN)
        socks[sock.fileno()] = sock
        sock.send(REQUEST)
    answers = 0
    start = time.perf_counter()
    end = start + seconds
    while time.perf_counter() < end:
        for number, _ in poll.poll(1.0):
            data = socks[number].recv(65_536)
            if not data.startswith(b"HTTP/1.1 200 ") or not data.endswith(b'{"ok":true}'):
                raise RuntimeError(f"unexpected answer: {data[:100]!r}")
            answers += 1
            socks[number].send(REQUEST)
    elapsed = time.perf_counter() - start
    for sock in socks.values():
        sock.close()
    poll.close()
    return answers / elapsed


def cpu_seconds(pid: int) -> float:
    with Path(f"/proc/{pid}/stat").open() as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def pin(core: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {core})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--loop", choices=["uvloop", "asyncio"], default="uvloop")
    options = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    context = multiprocessing.get_context("spawn")
    servers = {}
    rates: dict[str, list[float]] = {"stock": [], "ours": []}
    costs: dict[str, list[float]] = {"stock": [], "ours": []}
    try:
        for kind in rates:
            ours, theirs = context.Pipe()
            process = context.Process(target=run_server, args=(kind, options.loop, cores[0], theirs), daemon=True)
            process.start()
            servers[kind] = (process, ours.recv())
        pin(cores[-1])
        for _, port in servers.values():
            load(port, options.connections, 0.3)
        for _ in range(options.rounds):
            for kind, (process, port) in servers.items():
                assert process.pid is not None
                before = cpu_seconds(process.pid)
                rate = load(port, options.connections, options.seconds)
                rates[kind].append(rate)
                costs[kind].append((cpu_seconds(process.pid) - before) / (rate * options.seconds) * 1e6)
    finally:
        for process, _ in servers.values():
            process.terminate()
            process.join(5)
    for kind in rates:
        print(
            f"{kind:6} {statistics.median(rates[kind]):8.0f} requests/s (min {min(rates[kind]):.0f},"
            f" max {max(rates[kind]):.0f}), {statistics.median(costs[kind]):.0f} µs CPU each"
        )
    ratios = [ours / stock for ours, stock in zip(rates["ours"], rates["stock"], strict=True)]
    print(
        f"ratio  {statistics.median(ratios):8.2f} (min {min(ratios):.2f}, max {max(ratios):.2f}), loop {options.loop}"
    )


if __name__ == "__main__":
    main()
