"""`serve` starts gateways as processes and sees to it that nothing of them is left."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from tornado.ioloop import IOLoop

from gateway.store import EmbeddedServer
from gateway.testing.ports import free_ports
from tests.polling import until
from tests.processes.served import MODELS, Served, children, has_taken, is_alive, port_is_free

Serve = Callable[..., Coroutine[Any, Any, Served]]


class Yard:
    """Every gateway of a test, and every process it was seen to have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.gateways: list[Served] = []

    def make(
        self,
        models: str = MODELS,
        *,
        name: str = "",
        kind: type[Served] = Served,
        workers: int = 1,
        ports: tuple[int, int] | None = None,
        **options: Any,
    ) -> Served:
        """A gateway that is not started. `ports`: of calls and the side port; None: free ones."""
        folder = self.folder / (name or f"gateway{len(self.gateways)}")
        folder.mkdir()
        first, second = ports or free_ports(2)
        gateway = kind(folder, (first, second), models, workers=workers, **options)
        self.gateways.append(gateway)
        return gateway

    async def serve(self, models: str = MODELS, *, workers: int = 1, **options: Any) -> Served:
        """A gateway that serves, with an account and a key."""
        gateway = self.make(models, workers=workers, **options)
        await gateway.started(workers=workers)
        await asyncio.to_thread(gateway.create_key)
        return gateway

    async def clear(self) -> None:
        """Stop all of them; complain of what stays."""
        for gateway in self.gateways:
            process = gateway.process
            if process is None:
                continue
            pids = [process.pid, *children(process.pid)]
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                await until(lambda pid=process.pid: has_taken(pid, signal.SIGTERM))
                process.send_signal(signal.SIGTERM)  # nothing to wait for any more
            try:
                await gateway.ended()
                await until(lambda pids=pids: not any(map(is_alive, pids)))
                assert port_is_free(gateway.port)
                assert port_is_free(gateway.side_port)
            finally:
                for pid in filter(is_alive, pids):
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture
def yard(io_loop: IOLoop, tmp_path: Path) -> Iterator[Yard]:
    """Where gateways are made."""
    yard = Yard(tmp_path)
    yield yard
    io_loop.run_sync(yard.clear)


@pytest.fixture
def serve(yard: Yard) -> Serve:
    """Starts a gateway with an account and a key."""
    return yard.serve


@pytest.fixture
def store_url(tmp_path: Path) -> Iterator[str]:
    """A server that neither gateway owns."""
    server = EmbeddedServer(tmp_path / "store")
    server.start_blocking()
    yield f"unix://{server.socket}"
    server.stop_blocking()
