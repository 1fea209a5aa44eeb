"""The slowest call beside a reload of a large configuration: `python -m benchmarks reload`.

::

    python -m benchmarks reload                                   # 5,000 models, 400 calls a second; 90 seconds
    python -m benchmarks reload --models 1000 --rate 300 --json reload.json

One gateway serves the mock upstream in an open loop. Its file is rewritten and reloaded three times: one model more,
the same file, and other prices of all models. The calls in the `WINDOW` seconds after each reload are compared with
those before it, in which nothing was reloaded: on a shared machine both have the same neighbours. Latency counts from
the moment a call was due. All processes of the gateway share all cores, as the supervisor reads the file too.
"""

from __future__ import annotations

import http.client
import os
import select
import signal
import socket
import sys
import tempfile
import threading
import time
from collections import deque
from pathlib import Path
from typing import Final

import click
import msgspec
from msgspec import Struct
from rich.console import Console
from rich.table import Table

from benchmarks.closed_loop import is_whole
from benchmarks.contenders import Place
from benchmarks.cores import Cores, available_cores, pinned
from benchmarks.fault import BenchFault
from benchmarks.load import Load
from benchmarks.populated import MODEL, Population, Site, populated
from benchmarks.start import prepare
from benchmarks.upstream import mock_upstream

CONNECTIONS: Final = 64
QUIET: Final = 10.0  # seconds before each reload
WINDOW: Final = 10.0  # seconds after it, and until the change is visible
LOOK_EVERY: Final = 0.05  # seconds
GIVE_UP: Final = 60.0  # seconds until a change is visible
READ: Final = 65_536
NEW_MODEL: Final = "mockadded"


class Timed(Struct, frozen=True):
    """An answered call; times in seconds of `time.monotonic`."""

    due: float
    seconds: float
    status: int


class Reload(Struct, kw_only=True):
    """One reload; times in seconds of `time.monotonic`."""

    change: str
    begun: float
    visible: float = 0.0  # seconds until the change was seen; 0 if nothing changed
    ended: float = 0.0


class Line(Struct, frozen=True, kw_only=True):
    """A row of the table; latencies in milliseconds."""

    change: str
    calls: int
    visible: float
    p50: float
    p99: float
    slowest: float
    slowest_before: float  # in the quiet time before it
    failed: int


class Found(Struct, frozen=True, kw_only=True):
    """The document of --json."""

    models: int
    rate: int
    lines: list[Line]


class OpenLoop(threading.Thread):
    """Sends requests by the clock over kept connections until `stop`, in a thread of its own."""

    def __init__(self, port: int, request: bytes, rate: int) -> None:
        super().__init__(daemon=True)
        self.calls: list[Timed] = []
        self.stop = threading.Event()
        self._request = request
        self._every = 1.0 / rate
        self._poll = select.epoll()
        self._free: deque[socket.socket] = deque()
        self._busy: dict[int, tuple[socket.socket, float, bytearray]] = {}
        for _ in range(CONNECTIONS):
            sock = socket.create_connection(("127.0.0.1", port))
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._poll.register(sock, select.EPOLLIN)
            self._free.append(sock)

    def run(self) -> None:
        due = time.monotonic()
        while not self.stop.is_set():
            while due <= time.monotonic() and self._free:
                sock = self._free.popleft()
                self._busy[sock.fileno()] = sock, due, bytearray()
                sock.sendall(self._request)
                due += self._every
            for descriptor, _ in self._poll.poll(max(due - time.monotonic(), 0.0) if self._free else 0.1):
                self._read(descriptor)
        for sock in (*self._free, *(sock for sock, _, _ in self._busy.values())):
            sock.close()

    def _read(self, descriptor: int) -> None:
        sock, due, data = self._busy[descriptor]
        data += sock.recv(READ)
        if is_whole(data):
            self.calls.append(Timed(due, time.monotonic() - due, int(data[9:12])))
            del self._busy[descriptor]
            self._free.append(sock)


@click.command()
@click.option("--models", default=5_000, show_default=True, type=click.IntRange(1), help="In the configuration.")
@click.option("--rate", default=400, show_default=True, type=click.IntRange(1, 5_000), help="Calls a second.")
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write everything measured to FILE.")
def reload(*, models: int, rate: int, json_file: Path | None) -> None:
    """Measure the slowest call while a large configuration is reloaded, and until a change is visible."""
    tables = Console(width=None if sys.stdout.isatty() else 120)
    try:
        prepare()
        found = measure(models, rate)
    except BenchFault as fault:
        raise click.ClickException(str(fault)) from None
    if json_file:
        json_file.write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1) + b"\n")
    tables.print(table_of(found))


def measure(models: int, rate: int, *, quiet: float = QUIET, window: float = WINDOW) -> Found:
    """Start a gateway, load it, and reload it three times; `quiet` and `window` in seconds."""
    cores = available_cores()
    place_cores = Cores(contender=cores, load=cores[-1:])
    with (
        pinned(place_cores.load),
        tempfile.TemporaryDirectory(prefix="bench-") as name,
        mock_upstream(Path(name), cores=place_cores.load) as upstream,
    ):
        place = Place(Path(name), cores=place_cores, upstream=upstream, models=("mock",), workers=1)
        with populated(Population(models=models), place) as site:
            load = OpenLoop(site.server.port, site.requests(Load(mode="json", connections=1))[0], rate)
            load.start()
            try:
                reloads = _reload_three_times(site, place.folder / "gateway.toml", quiet, window)
            finally:
                load.stop.set()
                load.join()
    return Found(models=models, rate=rate, lines=[line_of(one, load.calls, quiet) for one in reloads])


def _reload_three_times(site: Site, file: Path, quiet: float, window: float) -> list[Reload]:
    before = file.read_text(encoding="utf-8")
    more = before + MODEL.format(name=NEW_MODEL)
    dearer = before.replace("input = 0.25,", "input = 0.5,")
    found: list[Reload] = []
    for change, text in (("one model more", more), ("the same file", more), ("all prices, one model less", dearer)):
        time.sleep(quiet)
        file.write_text(text, encoding="utf-8")
        one = Reload(change=change, begun=time.monotonic())
        os.kill(site.server.pids[0], signal.SIGHUP)
        if found and text == more:
            time.sleep(window)
        else:
            _await_visible(site, one, has_model=text == more)
            time.sleep(max(one.begun + window - time.monotonic(), 0.0))
        one.ended = time.monotonic()
        found.append(one)
    return found


def _await_visible(site: Site, one: Reload, *, has_model: bool) -> None:
    """Ask for the added model until it is there, or is not there any more."""
    connection = http.client.HTTPConnection("127.0.0.1", site.server.port)
    while True:
        connection.request("GET", f"/v1/models/{NEW_MODEL}", headers=site.server.headers)
        answer = connection.getresponse()
        answer.read()
        one.visible = time.monotonic() - one.begun
        if (answer.status == 200) == has_model:
            connection.close()
            return
        if one.visible > GIVE_UP:
            raise BenchFault(f"the reload ({one.change}) is not visible after {GIVE_UP:g} s")
        time.sleep(LOOK_EVERY)


def line_of(one: Reload, calls: list[Timed], quiet: float) -> Line:
    """What the calls that were due in the window of a reload saw."""
    inside = [call for call in calls if one.begun <= call.due < one.ended]
    before = [call.seconds for call in calls if one.begun - quiet <= call.due < one.begun - 1.0]
    if not inside or not before:
        raise BenchFault("no call was answered")
    times = sorted(call.seconds for call in inside)
    return Line(
        change=one.change,
        calls=len(inside),
        visible=one.visible,
        p50=1e3 * times[len(times) // 2],
        p99=1e3 * times[int(len(times) * 0.99)],
        slowest=1e3 * times[-1],
        slowest_before=1e3 * max(before),
        failed=sum(call.status != 200 for call in inside),
    )


def table_of(found: Found) -> Table:
    """A row for each reload."""
    title = f"{found.models:,} models, {found.rate} calls a second"
    table = Table(title=title, title_justify="left")
    table.add_column("reload")
    for column in ("calls", "not 200", "visible s", "p50 ms", "p99 ms", "slowest ms", "slowest before ms"):
        table.add_column(column, justify="right")
    for line in found.lines:
        table.add_row(
            line.change,
            f"{line.calls:,}",
            str(line.failed),
            f"{line.visible:.2f}" if line.visible else "–",
            *(f"{value:.1f}" for value in (line.p50, line.p99, line.slowest, line.slowest_before)),
        )
    return table
