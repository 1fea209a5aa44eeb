"""One real server for the tests of this folder; those that kill or restart make their own."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gateway.store import EmbeddedServer


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The unix socket of a running server."""
    server = EmbeddedServer(tmp_path_factory.mktemp("store"))
    server.start_blocking()
    yield server.socket
    server.stop_blocking()
