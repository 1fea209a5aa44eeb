"""The start over a store that is older than the audit trail: no call before what was closed since is closed again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from gateway.admin.outbox import known_mark, read_mark
from gateway.errors import GatewayError
from gateway.log import gateway_log
from gateway.store import Store
from gateway.store.known_text import KnownText

AGAIN = 0.1  # seconds between two looks


async def let_older_store_close(store: Store, data_dir: Path, start_importer: Callable[[], None]) -> None:
    """Return at once, unless the store is older than it was: then start the importer and wait for its replay.

    The wait has no end while the database is away: a revoked key is not to work. A store that does not answer yet is
    not waited for.
    """
    known = known_mark(data_dir)
    if not await _is_older(store, known, while_away=False):
        return
    gateway_log.error(
        "the store is older than the audit trail: no call is admitted before the importer has closed again what was"
        " closed since"
    )
    start_importer()
    is_older = True
    while is_older:
        await asyncio.sleep(AGAIN)
        is_older = await _is_older(store, known, while_away=True)


async def _is_older(store: Store, known: KnownText, *, while_away: bool) -> bool:
    mark = known.read()
    if not mark:
        return False
    try:
        return await read_mark(store) < mark
    except GatewayError:
        return while_away
