"""The refused requests of the page of an account, as far as the reader may see its keys."""

from __future__ import annotations

from collections.abc import Collection

from gateway.admin.rights import reads_keys
from gateway.console.ranges import Range
from gateway.console.visit import Visit
from gateway.history.refusals import RefusalQuery, RefusalSum, count_refusals, read_refusals


async def refused_requests(visit: Visit, chosen: Range, *, most: int) -> list[RefusalSum]:
    """The largest sums of the range by account, key, model and code."""
    query = await _query(visit, chosen)
    return await visit.services.sql.run(read_refusals, await visit.services.database(), query, most=most)


async def count_of_refused(visit: Visit, chosen: Range, *, key: str = "", user: str = "", model: str = "") -> int:
    """How many requests were refused in the range, with one key, with keys of one user, or for one model."""
    query = await _query(visit, chosen, key=key, user=user, model=model)
    return await visit.services.sql.run(count_refusals, await visit.services.database(), query)


async def _query(visit: Visit, chosen: Range, *, key: str = "", user: str = "", model: str = "") -> RefusalQuery:
    keys = await _keys(visit, key, user)
    return RefusalQuery(since=chosen.since, until=chosen.until, account=visit.account, keys=keys, model=model)


async def _keys(visit: Visit, key: str, user: str) -> Collection[str] | None:
    """The ids of the keys that the reader may see and that fit; None for all keys of the account."""
    store, actor, account = visit.store, visit.actor, visit.account
    if not (key or user) and reads_keys(actor, account):
        return None
    if key:
        return {key} if await store.key_service.has(actor, account, key, user) else set()
    return await store.key_service.ids(actor, account, user)
