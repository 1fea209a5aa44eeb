"""The end of a gateway: it serves on for a while, then its workers drain; a second signal shortens both."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from gateway.log import gateway_log
from gateway.runtime.ipc import CUT_WITHIN, SETTLE_WITHIN
from gateway.runtime.worker_process import WorkerProcess

GRACE = CUT_WITHIN + 2 * SETTLE_WITHIN + 3.0  # seconds beyond drain_timeout before a worker that does not end is killed


async def serve_on(workers: Sequence[WorkerProcess], delay: float, hurry: asyncio.Event) -> None:
    """Serve for `delay` seconds more, so that load balancers notice that the gateway is not ready; `hurry` ends it."""
    gateway_log.info("stopping: not ready any more, requests are served for %g s more", delay)
    for worker in workers:
        worker.send("close after answers")
    try:
        async with asyncio.timeout(delay):
            await hurry.wait()
    except TimeoutError:
        return


async def drain(workers: Sequence[WorkerProcess], drain_timeout: float, hurry: asyncio.Event) -> None:
    """Take no new connections, and end the workers when their running requests have finished. `hurry` cuts them."""
    gateway_log.info("draining: no new connections, running requests finish")
    for worker in workers:
        worker.stop_accepting()
    ending = asyncio.create_task(_stop(workers, drain_timeout + GRACE))
    hurrying = asyncio.create_task(hurry.wait())
    await asyncio.wait([ending, hurrying], return_when=asyncio.FIRST_COMPLETED)
    hurrying.cancel()
    if not ending.done():
        gateway_log.warning("second stop signal: cutting running requests")
        ending.cancel()
        for worker in workers:
            worker.send("hurry")
        await _stop(workers, GRACE)


async def _stop(workers: Sequence[WorkerProcess], within: float) -> None:
    await asyncio.gather(*(worker.stop(within) for worker in workers))
