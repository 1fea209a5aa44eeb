"""Portkey's open gateway on Node: routes by request headers; no keys, no limits, no billing.

It lies in a folder of its own, which --portkey or $BENCH_PORTKEY names; docs/benchmarks.md tells how to install it so
that it answers streams.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders.contender import Contender, Place, Running, await_ready
from benchmarks.processes import running
from gateway.testing.ports import free_ports

SERVER = Path("node_modules/@portkey-ai/gateway/build/start-server.js")


class Portkey(Contender):
    """`node start-server.js --headless`."""

    name = "portkey"

    def __init__(self, folder: str) -> None:
        self._server = (Path(folder) / SERVER).absolute() if folder else None

    def absent(self) -> str:
        """Without Node or the package."""
        if self._server is None:
            return "say where it is installed with --portkey or $BENCH_PORTKEY"
        if not self._server.is_file():
            return f"no {self._server}"
        return "" if shutil.which("node") else "no node on PATH"

    @contextmanager
    def running(self, place: Place) -> Iterator[Running]:
        """The upstream is named in each request."""
        [port] = free_ports(1)
        command = ["node", str(self._server), f"--port={port}", "--headless"]
        env = {"NODE_ENV": "production", "TRUSTED_CUSTOM_HOSTS": "127.0.0.1,localhost"}
        with running(command, log=place.folder / "portkey.log", cores=place.cores.contender, env=env) as process:
            headers = {
                "Authorization": "Bearer sk-mock",
                "x-portkey-provider": "openai",
                "x-portkey-custom-host": f"{place.upstream_url}/v1",
            }
            server = Running(port=port, pids=(process.pid,), headers=headers)
            await_ready(self.name, server, process)
            yield server
