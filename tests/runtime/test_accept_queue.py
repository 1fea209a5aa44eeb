"""The queue of new connections: what the system drops is counted, and a shorter one is told."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from gateway.metrics import Metrics
from gateway.runtime.accept_queue import AcceptQueues, dropped_by, warn_of_shorter_queue
from tests.polling import until_blocking

QUEUE = 2
ATTEMPTS = 10


@pytest.fixture
def full() -> Iterator[socket.socket]:
    """A listening socket whose queue has dropped connections."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(QUEUE)
        for _ in range(ATTEMPTS):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(listener.getsockname())
        until_blocking(lambda: dropped_by(listener) >= ATTEMPTS - QUEUE - 1)
        yield listener


def dropped(metrics: Metrics) -> float:
    delta = metrics.drain()
    return (
        0 if delta is None else sum(value for name, _, value in delta.counters if name == "gateway_accept_queue_drops")
    )


@pytest.mark.holds("operations/network.md#connections-9")
def test_dropped_connections_are_counted_once_and_logged(full: socket.socket, caplog: pytest.LogCaptureFixture) -> None:
    metrics = Metrics()
    queues = AcceptQueues(metrics)
    queues.look([full])
    first = dropped(metrics)
    assert first >= ATTEMPTS - QUEUE - 1
    assert f"the queue of new connections was full: {first:.0f} were dropped" in caplog.text
    queues.look([full])
    assert dropped(metrics) <= dropped_by(full) - first  # attempts that the system repeats meanwhile


def test_closed_socket_is_left_out() -> None:
    metrics = Metrics()
    with socket.socket() as sock:
        pass
    AcceptQueues(metrics).look([sock])
    assert dropped(metrics) == 0


@pytest.mark.holds("operations/network.md#connections-9")
def test_shorter_limit_of_the_system_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    limit = tmp_path / "somaxconn"
    limit.write_text("128\n")
    warn_of_shorter_queue(128, limit)
    warn_of_shorter_queue(4_096, tmp_path / "missing")
    assert not caplog.records
    warn_of_shorter_queue(4_096, limit)
    assert "the system allows 128: raise net.core.somaxconn" in caplog.text
