"""Fixtures that run each test of a module that imports them on both event loops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
import uvloop
from tornado.ioloop import IOLoop


@pytest.fixture(params=["asyncio", "uvloop"], autouse=True)
def loop_kind(request: pytest.FixtureRequest) -> str:
    """Apart from `io_loop`, which pytest-tornado asks for too late to multiply tests."""
    return str(request.param)


@pytest.fixture
def io_loop(loop_kind: str) -> Iterator[IOLoop]:
    loop = uvloop.new_event_loop() if loop_kind == "uvloop" else asyncio.new_event_loop()
    io_loop = IOLoop(asyncio_loop=loop, make_current=False)
    asyncio.set_event_loop(loop)
    yield io_loop
    asyncio.set_event_loop(None)
    io_loop.close(all_fds=True)
