"""The side port has the limits of the other ports: strict heads that come in time, and few connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.config.loader import parse
from gateway.http_server.limits import ServerLimits
from gateway.runtime.client_limits import SIDE_CONNECTIONS, console_limits, side_limits, worker_limits
from gateway.runtime.side_port import SidePort

SOON = 60.0  # seconds
ASK = b"GET /readyz HTTP/1.1\r\nHost: h\r\n"


class Source:
    """A gateway that is ready."""

    async def measured(self) -> Source:
        return self

    def text(self, accept: str) -> tuple[bytes, str]:
        return b"", "text/plain"

    async def is_ready(self) -> Mapping[str, bool]:
        return {"store": True}


@asynccontextmanager
async def answer_to(data: bytes, **limits: Any) -> AsyncIterator[bytes]:
    side, sock = SidePort(Source(), ServerLimits(**limits)), socket.create_server(("127.0.0.1", 0))
    await side.start(sock)
    reader, writer = await asyncio.open_connection(*side.address)
    try:
        writer.write(data)
        async with asyncio.timeout(SOON):
            yield await reader.readline()
    finally:
        writer.close()
        await side.close()


@pytest.mark.holds("operations/network.md#connections-4")
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (ASK + b"\r\n", 200),
        (b"GET /readyz HTTP/1.1\nHost: h\n\n", 400),
        (ASK + b"A: " + b"a" * 20_000 + b"\r\n\r\n", 400),
        (ASK + b"Content-Length: 5000\r\n\r\n", 413),
        (ASK + b"A", 408),
    ],
)
async def test_heads_are_strict_small_and_in_time(data: bytes, status: int) -> None:
    limits = {"max_header_bytes": 16_384, "max_body_bytes": 4_096, "header_timeout": 0.3}
    async with answer_to(data, **limits) as found:
        assert found.startswith(b"HTTP/1.1 %d " % status)


@pytest.mark.holds("operations/network.md#connections-4")
def test_all_ports_cut_heads_after_the_same_time_and_limit_connections() -> None:
    settings = parse({"server": {"limits": {"header_timeout": 7.0}}})
    found = [limits(settings) for limits in (worker_limits, console_limits, side_limits)]
    assert [limits.header_timeout for limits in found] == [7.0, 7.0, 7.0]
    assert all(limits.max_connections for limits in found)
    assert found[2].max_connections <= SIDE_CONNECTIONS
    assert side_limits(parse({"server": {"limits": {"header_timeout": 60.0}}})).header_timeout == 10.0
