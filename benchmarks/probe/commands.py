"""The bench's end of a probe: finds the process that serves a connection, and sends it commands."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.fault import BenchFault

ANSWERS_WITHIN = 300.0  # seconds; a process under valgrind is slow


class Commands:
    """A connection to the probe inside one process."""

    def __init__(self, folder: Path, pid: int) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(ANSWERS_WITHIN)
        try:
            self._socket.connect(str(folder / str(pid)))
        except FileNotFoundError:
            raise BenchFault("the worker did not load the probe; its log says why") from None
        self._file = self._socket.makefile("rw", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        self._socket.close()

    def send(self, name: str, argument: str = "") -> Any:
        """The answer to one command; it has been carried out when this returns."""
        self._file.write(f"{name} {argument}\n")
        self._file.flush()
        line = self._file.readline()
        if not line:
            raise BenchFault(f"the probe ended at {name!r}")
        return json.loads(line)


def serving_pid(client: socket.socket) -> int:
    """The process that holds the other end of a TCP connection on loopback."""
    here, there = client.getsockname()[1], client.getpeername()[1]
    for line in Path("/proc/net/tcp").read_text(encoding="utf-8").splitlines()[1:]:
        fields = line.split()
        ports = [int(address.rpartition(":")[2], 16) for address in fields[1:3]]
        if ports == [there, here]:
            return _holder(f"socket:[{fields[9]}]")
    raise BenchFault("the server's end of the connection is not in /proc/net/tcp")


def _holder(name: str) -> int:
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if link.readlink().name == name:
                return int(link.parts[2])
        except OSError:
            continue  # the process or the descriptor is gone, or is somebody else's
    raise BenchFault("no process holds the server's end of the connection")
