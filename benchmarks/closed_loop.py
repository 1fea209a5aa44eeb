"""Many connections in a closed loop, with the times of every call: who waited, and who was answered before whom.

load.c tells percentiles only. This client notes when each call was wanted and when its answer was whole. The first call
of a connection is wanted when the connection is: its time in the listening queue counts, also after a lost SYN.
"""

from __future__ import annotations

import select
import socket
import sys
import time
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

READ: Final = 65_536  # bytes; an answer of the mock is smaller
RETRY: Final = 0.02  # seconds after a connection was refused or reset


class Call(Struct, frozen=True):
    """One answered call; times in seconds of `time.monotonic`."""

    connection: int
    wanted: float
    answered: float
    status: int


@dataclass(eq=False, slots=True)
class _Client:
    number: int
    request: bytes
    sock: socket.socket
    wanted: float
    is_open: bool = False
    data: bytearray = field(default_factory=bytearray)


def closed_loop(
    port: int, requests: Sequence[bytes], *, connections: int, seconds: float, most: int = sys.maxsize
) -> list[Call]:
    """Open all connections at once; each sends its request again as soon as it has its answer.

    Connections have the requests in turn. It ends after so many seconds, or after `most` answers.
    """
    return _Loop(port, requests).run(connections, seconds, most)


class _Loop:
    def __init__(self, port: int, requests: Sequence[bytes]) -> None:
        self._port = port
        self._requests = requests
        self._poll = select.epoll()
        self._clients: dict[int, _Client] = {}
        self._calls: list[Call] = []

    def run(self, connections: int, seconds: float, most: int) -> list[Call]:
        ends = time.monotonic() + seconds
        for number in range(connections):
            self._open(number, time.monotonic())
        while time.monotonic() < ends and len(self._calls) < most:
            for descriptor, _ in self._poll.poll(0.1, 4096):
                self._turn(self._clients[descriptor])
        for client in self._clients.values():
            client.sock.close()
        self._poll.close()
        return self._calls

    def _open(self, number: int, wanted: float) -> None:
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex(("127.0.0.1", self._port))
        self._clients[sock.fileno()] = _Client(number, self._requests[number % len(self._requests)], sock, wanted)
        self._poll.register(sock, select.EPOLLOUT)

    def _turn(self, client: _Client) -> None:
        try:
            if not client.is_open:
                client.sock.send(client.request)
                client.is_open = True
                self._poll.modify(client.sock, select.EPOLLIN)
                return
            data = client.sock.recv(READ)
        except OSError:
            data = b""
        if not data:
            self._again(client)
            return
        client.data += data
        if is_whole(client.data):
            self._answered(client)

    def _answered(self, client: _Client) -> None:
        now = time.monotonic()
        self._calls.append(Call(client.number, client.wanted, now, int(client.data[9:12])))
        closes = b"connection: close" in client.data[:2048].lower()
        client.data.clear()
        client.wanted = now
        if closes:
            self._again(client)
        else:
            client.sock.send(client.request)

    def _again(self, client: _Client) -> None:
        """Open the connection again; the call is wanted since it was wanted."""
        del self._clients[client.sock.fileno()]
        client.sock.close()
        time.sleep(RETRY if not client.is_open else 0.0)
        self._open(client.number, client.wanted)


def is_whole(data: bytearray) -> bool:
    """Whether the bytes are a whole answer with a Content-Length."""
    end = data.find(b"\r\n\r\n")
    if end < 0:
        return False
    head = bytes(data[:end]).lower()
    return len(data) - end - 4 >= int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0] or 0)


def overtaking(calls: Sequence[Call]) -> list[int]:
    """For each call, in the order of the answers: how many calls were wanted later and answered earlier."""
    answered: list[float] = []
    found = []
    for call in sorted(calls, key=lambda call: call.answered):
        found.append(len(answered) - bisect_left(answered, call.wanted))
        insort(answered, call.wanted)
    return found
