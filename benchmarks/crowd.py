"""A crowd of unfinished heads before the three ports: `python -m benchmarks.crowd`.

::

    python -m benchmarks.crowd --connections 5000 --descriptors 4096 --addresses 1,3,20 [--at FOLDER]

A gateway with a limit of descriptors is started, from another checkout with --at. For each number of hostile addresses
(127.0.0.2 and up) and each port, a process opens the connections, sends a head that has no end, and waits until all
are closed. Meanwhile 30 requests come from 127.0.0.1, five a second, each on a connection of its own.
"""

from __future__ import annotations

import json
import os
import select
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click
from msgspec import Struct

from benchmarks.fault import BenchFault
from gateway.testing.ports import free_ports

UNFINISHED: Final = b"GET /x HTTP/1.1\r\nHost: h\r\nA"
REQUESTS: Final = 30
EVERY: Final = 0.2  # seconds
ANSWER_WITHIN: Final = 2.0  # seconds
CUT_WITHIN: Final = 15.0  # seconds
GIVE_UP: Final = 75.0  # seconds
AT_ONCE: Final = 200  # connections that are opened between two looks at the others
ROOT: Final = Path(__file__).parent.parent
PATHS: Final = {"v1": "/v1/models", "side": "/readyz", "console": "/sign-in"}
CONFIGURATION: Final = """
[server]
port = {v1}
[metrics]
port = {side}
[console]
enabled = true
port = {console}
[store]
data_dir = "{folder}/data"
[providers.fake]
plugin = "fake"
[models.quick]
provider = "fake"
free = true
"""


class Cut(Struct, frozen=True):
    """What became of the connections of a crowd; times in seconds."""

    opened: int
    closed: int
    longest: float  # of a connection, from its head to its end


class Answers(Struct, frozen=True):
    """What the other address saw."""

    in_time: int
    slowest: float  # seconds; of those that were answered


def crowd(port: int, connections: int, sources: Sequence[str]) -> Cut:
    """Open the connections in turn from the sources, and wait until the server has closed all of them."""
    poll = select.epoll()
    waiting: dict[int, tuple[socket.socket, float]] = {}  # the time is that of the head, 0.0 before
    left, opened, closed, longest, ends = connections, 0, 0, 0.0, time.monotonic() + GIVE_UP
    while (left or waiting) and time.monotonic() < ends:
        for _ in range(min(left, AT_ONCE)):
            sock = _connecting(port, sources[left % len(sources)])
            waiting[sock.fileno()] = sock, 0.0
            poll.register(sock, select.EPOLLOUT)
            left -= 1
        for number, _event in poll.poll(0.0 if left else 0.1):
            sock, since = waiting[number]
            if not since and _begins(sock):
                opened += 1
                waiting[number] = sock, time.monotonic()
                poll.modify(number, select.EPOLLIN)
            elif not since or _has_ended(sock):
                if since:
                    closed, longest = closed + 1, max(longest, time.monotonic() - since)
                del waiting[number]
                sock.close()
    for sock, since in waiting.values():
        longest = max(longest, time.monotonic() - since) if since else longest
        sock.close()
    return Cut(opened, closed, longest)


def _connecting(port: int, source: str) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    sock.bind((source, 0))
    sock.connect_ex(("127.0.0.1", port))
    return sock


def _begins(sock: socket.socket) -> bool:
    try:
        sock.send(UNFINISHED)
    except OSError:
        return False
    return True


def _has_ended(sock: socket.socket) -> bool:
    try:
        return not sock.recv(4096)
    except OSError:
        return True


def ask(port: int, path: str, *, headers: str = "") -> float | None:
    """One request on a connection of its own: seconds until its answer of 200 or 401 was whole; None without one."""
    started = time.monotonic()
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10 * ANSWER_WITHIN) as sock:
            sock.sendall(f"GET {path} HTTP/1.1\r\nHost: h\r\n{headers}Connection: close\r\n\r\n".encode())
            data = b""
            while chunk := sock.recv(65_536):
                data += chunk
    except OSError:
        return None
    return time.monotonic() - started if data[9:12] in (b"200", b"401") else None


def ask_often(port: int, path: str, every: float = EVERY, within: float = ANSWER_WITHIN) -> Answers:
    """Requests at a steady rate, whatever becomes of those before."""
    with ThreadPoolExecutor(REQUESTS) as pool:
        asked = []
        for _ in range(REQUESTS):
            asked.append(pool.submit(ask, port, path))
            time.sleep(every)
        times = [seconds for one in asked if (seconds := one.result()) is not None]
    return Answers(sum(seconds <= within for seconds in times), max(times, default=0.0))


def beside_a_crowd(
    port: int,
    path: str,
    connections: int,
    sources: Sequence[str],
    *,
    every: float = EVERY,
    within: float = ANSWER_WITHIN,
) -> tuple[Answers, Cut]:
    """Answers to another address from the beginning of the crowd on, and what became of the crowd; times in seconds."""
    command = [sys.executable, "-m", "benchmarks.crowd", "--only-crowd", str(port), "--connections", str(connections)]
    process = subprocess.Popen([*command, "--sources", ",".join(sources)], stdout=subprocess.PIPE, cwd=ROOT)
    try:
        assert process.stdout is not None
        process.stdout.readline()  # it begins
        answers = ask_often(port, path, every, within)
        text, _ = process.communicate(timeout=2 * GIVE_UP)
    finally:
        process.kill()
        process.wait()
    return answers, Cut(**json.loads(text))


def hostile_addresses(count: int) -> list[str]:
    """So many addresses of the loopback."""
    return [f"127.0.0.{2 + number}" for number in range(count)]


@contextmanager
def gateway(descriptors: int, at: Path) -> Iterator[dict[str, int]]:
    """A gateway with a hard limit of descriptors; its ports by name."""
    with tempfile.TemporaryDirectory() as folder:
        ports = dict(zip(PATHS, free_ports(3), strict=True))
        file = Path(folder) / "gateway.toml"
        file.write_text(CONFIGURATION.format(folder=folder, **ports), encoding="utf-8")
        process = subprocess.Popen(
            ["/bin/sh", "-c", f'ulimit -n {descriptors}; exec "$0" "$@"', sys.executable, "-m", "gateway", "serve",
             "--config", str(file)],
            cwd=folder, env={**os.environ, "PYTHONPATH": str(at)}, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            ends = time.monotonic() + 60.0
            while any(ask(ports[name], path) is None for name, path in PATHS.items()):
                if process.poll() is not None or time.monotonic() > ends:
                    raise BenchFault("the gateway does not start")
                time.sleep(0.2)
            yield ports
        finally:
            process.terminate()
            process.wait(60)


@click.command()
@click.option("--connections", default=5_000, show_default=True, help="Of the crowd.")
@click.option("--descriptors", default=4_096, show_default=True, help="Hard limit of each process of the gateway.")
@click.option("--addresses", default="1,3,20", show_default=True, help="Numbers of hostile addresses.")
@click.option("--ports", default=",".join(PATHS), show_default=True, help="Which ports.")
@click.option("--at", type=click.Path(path_type=Path, exists=True), default=ROOT, help="Another checkout.")
@click.option("--only-crowd", type=int, default=0, metavar="PORT", help="Be the crowd; prints what became of it.")
@click.option("--sources", default="127.0.0.2", help="Addresses of --only-crowd.")
def main(
    connections: int, descriptors: int, addresses: str, ports: str, at: Path, only_crowd: int, sources: str
) -> None:
    """Measure answers to one address beside a crowd of others."""
    if only_crowd:
        click.echo("begins")
        cut = crowd(only_crowd, connections, sources.split(","))
        click.echo(json.dumps({"opened": cut.opened, "closed": cut.closed, "longest": cut.longest}))
        return
    for count in map(int, addresses.split(",")):
        with gateway(descriptors, at.resolve()) as found:
            for name in ports.split(","):
                answers, cut = beside_a_crowd(found[name], PATHS[name], connections, hostile_addresses(count))
                click.echo(
                    f"{count:2d} hostile addresses, {name:7s}: {answers.in_time} of {REQUESTS} in {ANSWER_WITHIN:g} s, "
                    f"slowest {answers.slowest:.2f} s; {cut.closed} of {cut.opened} heads closed, longest "
                    f"{cut.longest:.1f} s"
                )


if __name__ == "__main__":
    main()
