"""Runs work in steps on the event loop, and leaves most of the loop's time to other requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Final

OTHERS: Final = 2.0  # times what the steps take
SLICE: Final = 0.0005  # seconds of work, in one or more steps, after which others run


class PacedSteps:
    """The stepwise work of one process.

    A request takes several turns of the loop. If each turn waited for a step, a request beside the work would wait for
    several of them. So a pause follows each step, the longer the more work there is: all of it together gets a third of
    the loop's time.
    """

    def __init__(self) -> None:
        self._running = 0

    async def run(self, steps: Iterator[None]) -> None:
        """Exhaust `steps`; raises what they raise."""
        self._running += 1
        try:
            began = time.monotonic()
            for _ in steps:
                took = time.monotonic() - began
                if took > SLICE:
                    await asyncio.sleep(OTHERS * took * self._running)
                    began = time.monotonic()
        finally:
            self._running -= 1
