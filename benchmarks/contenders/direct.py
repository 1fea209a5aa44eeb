"""No gateway at all: the mock upstream itself. The bound of the bench, and what added delays are counted from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from benchmarks.contenders.contender import Contender, Place, Running


class Direct(Contender):
    """The mock, on the load's cores."""

    name = "direct"
    pinned = False

    @contextmanager
    def running(self, place: Place) -> Iterator[Running]:
        """Nothing to start: the mock runs already."""
        yield Running(port=place.upstream.port, pids=(place.upstream.pid,))
