"""`until` for tests whose probes ask other processes."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from tests import polling

ASK_EVERY = 0.05  # seconds


async def until(probe: Callable[..., Any], *, within: float = polling.PATIENCE) -> Any:
    """`tests.polling.until` that asks a gateway, a store or a database, which is what coroutines do, less often.

    A request, or a query on a new connection, costs both sides as much as the pause of the other `until`: a test that
    waits for seconds would keep a core busy, which the gateway needs.
    """

    async def look() -> Any:
        value = probe()
        if inspect.isawaitable(value):
            value = await value
            if not value:
                await asyncio.sleep(ASK_EVERY)
        return value

    return await polling.until(look, within=within)
