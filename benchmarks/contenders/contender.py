"""What the bench asks of a contender: to say why it is absent, and to run for the length of a block.

::

    class Mine(Contender):
        name = "mine"

        @contextmanager
        def running(self, place: Place) -> Iterator[Running]:
            [port] = free_ports(1)
            command = ["mine", "--listen", str(port), "--upstream", place.upstream_url]
            with running(command, log=place.folder / "mine.log", cores=place.cores.contender) as process:
                server = Running(port=port, pids=(process.pid,))
                await_ready(self.name, server, process)
                yield server
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import ClassVar

import msgspec

from benchmarks.cores import Cores
from benchmarks.fault import BenchFault
from benchmarks.load import Load, http_request
from benchmarks.processes import Process
from benchmarks.upstream import Upstream

START_WITHIN = 90.0  # seconds until the first answer; LiteLLM alone takes more than ten
REFUSES_WITHIN = 10.0  # seconds of answers other than 200


class Place(msgspec.Struct, frozen=True):
    """Where a contender runs: a folder of its own, its cores, and the upstream to stand before."""

    folder: Path
    cores: Cores
    upstream: Upstream
    models: tuple[str, ...]
    workers: int = 1

    @property
    def upstream_url(self) -> str:
        """The mock's address, without /v1."""
        return f"http://127.0.0.1:{self.upstream.port}"


class Running(msgspec.Struct, frozen=True):
    """A contender that serves: where, how to ask, and whose CPU and memory to count."""

    port: int
    pids: tuple[int, ...]
    headers: dict[str, str] = {}
    path: str = "/v1/chat/completions"
    store_pid: int | None = None  # a database it keeps on the load's cores; counted apart
    store_socket: str = ""  # the database's Unix socket


class Contender(ABC):
    """One server to measure."""

    name: ClassVar[str]
    scales: ClassVar[bool] = False  # True when it can be started with several workers
    stored: ClassVar[bool] = False  # True when it keeps a database, told by Running.store_pid
    pinned: ClassVar[bool] = True  # False when it does not run on the contender's cores

    def absent(self) -> str:
        """Why it cannot run on this machine; empty when it can."""
        return ""

    @abstractmethod
    def running(self, place: Place) -> AbstractContextManager[Running]:
        """Start it, yield when it answers, and end it; BenchFault when it does not start."""


def await_ready(name: str, server: Running, process: Process) -> None:
    """Return when the server answers a chat request with 200."""
    request = http_request(Load(mode="json", connections=1), path=server.path, headers=server.headers)
    deadline = time.monotonic() + START_WITHIN
    answer, refuses = "no answer", False
    while time.monotonic() < deadline:
        if not process.alive:
            raise BenchFault(f"{name} ended at start: {process.last_words()}")
        try:
            status, answer = _ask(server, request)
        except (OSError, HTTPException) as error:
            answer = str(error)
        else:
            if status == 200:
                return
            if not refuses:
                refuses, deadline = True, time.monotonic() + REFUSES_WITHIN
        time.sleep(0.05)
    raise BenchFault(f"{name} does not get ready: {answer}")


def _ask(server: Running, request: bytes) -> tuple[int, str]:
    """The same bytes as the load generator's, so that what is ready is what will be measured."""
    head, _, body = request.partition(b"\r\n\r\n")
    fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:])
    connection = HTTPConnection("127.0.0.1", server.port, timeout=10)
    try:
        connection.request("POST", server.path, body=body, headers=fields)
        response = connection.getresponse()
        return response.status, f"status {response.status}: {response.read(300).decode(errors='replace')}"
    finally:
        connection.close()
