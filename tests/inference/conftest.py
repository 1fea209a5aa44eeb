"""The API tests' fixtures: models on a scriptable upstream, a client with a good key, and a server that is deaf."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.api.conftest import Client, client, other, settings, taken, upstream

__all__ = ["Client", "client", "other", "settings", "taken", "upstream"]


@pytest.fixture
def deaf() -> Iterator[str]:
    """The address of a server that accepts no connection: its queue is full, so a connect hangs."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=0)) as server:
        address = server.getsockname()
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(address)
        yield f"http://127.0.0.1:{address[1]}/v1"
        for one in waiting:
            one.close()
