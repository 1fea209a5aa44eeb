"""Where a page of a sorted set begins, with the commands that the documented user of the store may run."""

from __future__ import annotations

import asyncio

from gateway.store.link import RedisLink


async def position_behind(link: RedisLink, name: str, member: str, *, reverse: bool) -> int | None:
    """The index of the member behind `member`, from the highest score down with `reverse`; None without that member.

    Only members of the same score are read: few, as scores are milliseconds.
    """
    score = await link.call_repeatable("ZSCORE", name, member)
    if score is None:
        return None
    at = int(float(score))
    below, equal, total = await asyncio.gather(
        link.call_repeatable("ZCOUNT", name, "-inf", f"({at}"),
        link.call_repeatable("ZRANGEBYSCORE", name, at, at),
        link.call_repeatable("ZCARD", name),
    )
    if member.encode() not in equal:
        return None
    rank: int = below + equal.index(member.encode())
    behind: int = total - rank if reverse else rank + 1
    return behind


async def page_of_members(link: RedisLink, name: str, start: int, size: int, *, reverse: bool) -> list[bytes]:
    """Up to `size` members from an index on."""
    order = ("REV",) if reverse else ()
    members: list[bytes] = await link.call_repeatable("ZRANGE", name, start, start + size - 1, *order)
    return members
