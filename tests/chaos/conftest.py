"""A gateway of several processes in front of an upstream that keeps a log of the truth."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from gateway.testing import FakeUpstream
from tests.chaos.traffic import MODELS
from tests.processes.conftest import Yard, yard  # noqa: F401 - a fixture
from tests.processes.served import Served

Front = Callable[..., Coroutine[Any, Any, Served]]


@pytest.fixture
def upstream(io_loop: IOLoop) -> Iterator[FakeUpstream]:
    """Where the models live."""
    server = FakeUpstream()
    io_loop.run_sync(server.start)
    yield server
    io_loop.run_sync(server.close)


@pytest.fixture
def front(yard: Yard, upstream: FakeUpstream) -> Front:  # noqa: F811
    """Starts a gateway in front of the upstream."""

    async def start(*, workers: int = 2, **options: Any) -> Served:
        return await yard.serve(MODELS.format(url=upstream.base_url), workers=workers, **options)

    return start


@pytest.fixture
def share() -> float:
    """Which part of its full size each test runs in; CHAOS_SHARE=0.1 is for a look while developing."""
    return float(os.environ.get("CHAOS_SHARE", "1"))
