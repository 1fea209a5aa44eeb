"""Stock Tornado and aiohttp: what one gets in an afternoon with the same libraries. The server is stock_app.py."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.contenders.contender import Contender, Place, Running, await_ready
from benchmarks.processes import running
from gateway.testing.ports import free_ports

APP = Path(__file__).with_name("stock_app.py")


class Stock(Contender):
    """The pass-through app in this Python."""

    name = "stock"

    @contextmanager
    def running(self, place: Place) -> Iterator[Running]:
        """One process."""
        [port] = free_ports(1)
        command = [sys.executable, str(APP), str(port), place.upstream_url]
        with running(command, log=place.folder / "stock.log", cores=place.cores.contender) as process:
            server = Running(port=port, pids=(process.pid,))
            await_ready(self.name, server, process)
            yield server
