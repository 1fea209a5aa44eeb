"""Waiting for something to become true, without guessing how long it takes."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")


async def until(probe: Callable[[], T | Awaitable[T | None] | None], *, within: float = 5.0) -> T:
    """The first truthy value of `probe`, asked every few milliseconds."""
    deadline = time.monotonic() + within
    while True:
        value = probe()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value  # type: ignore[return-value]
        if time.monotonic() > deadline:
            raise AssertionError(f"still {value!r} after {within} s")
        await asyncio.sleep(0.005)
