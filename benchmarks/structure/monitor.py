"""What clients and scripts send to a store while something is done."""

from __future__ import annotations

import socket
from collections.abc import Callable

import redis

from benchmarks.fault import BenchFault

END = "bench-end-of-window"


def monitored(path: str, client: redis.Redis, work: Callable[[], object]) -> list[bytes]:
    """The lines of MONITOR while `work` is done; `path` is the store's socket, and `client` is connected to it."""
    with socket.socket(socket.AF_UNIX) as monitor:
        monitor.connect(path)
        monitor.sendall(b"MONITOR\r\n")
        monitor.recv(len(b"+OK\r\n"))
        work()
        client.echo(END)
        log = b""
        while END.encode() not in log:
            if not (data := monitor.recv(65536)):
                raise BenchFault("the store ended MONITOR")
            log += data
    return [line for line in log.splitlines() if END.encode() not in line]
