"""Delays that are the scenario of a test: somebody is slow, silent, busy or stopped for a known time.

Nothing else in a test sleeps. To wait for something, use `tests.polling` or an event of the test's own peer;
`test_fixed_sleeps.py` holds that.
"""

from __future__ import annotations

import asyncio
import time


async def upstream_is_silent_for(seconds: float) -> None:
    """Between two things that an upstream sends."""
    await asyncio.sleep(seconds)


async def caller_is_silent_for(seconds: float) -> None:
    """Between two things that a caller sends, reads or asks."""
    await asyncio.sleep(seconds)


async def store_is_paused_for(seconds: float) -> None:
    """Between the stop and the continuation of a store's process."""
    await asyncio.sleep(seconds)


async def provider_takes(seconds: float) -> None:
    """Code of a provider or an attempt that is slow, and lets the event loop run meanwhile."""
    await asyncio.sleep(seconds)


async def time_passes(seconds: float) -> None:
    """A clock is part of what is tested, and it is not the test's to set."""
    await asyncio.sleep(seconds)


async def operator_waits_for(seconds: float) -> None:
    """Between two steps of a procedure whose text says so."""
    await asyncio.sleep(seconds)


async def forever() -> None:
    """Never returns, but can be cancelled."""
    await asyncio.Event().wait()


def loop_is_held_for(seconds: float) -> None:
    """Code that blocks the event loop, as a call that waits for a disk does."""
    time.sleep(seconds)


def process_runs_for(seconds: float) -> None:
    """Another process runs on, up to a moment that is left to chance."""
    time.sleep(seconds)
