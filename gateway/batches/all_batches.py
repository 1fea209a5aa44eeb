"""The batches of all accounts by the time of their creation, and which account each one is of.

A position is the milliseconds of the creation and the id, so a page begins where the one before ended, also if the
batch there is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gateway.store.link import RedisLink
from gateway.store.links import Links

MADE, OF = "{batches}:made", "{batches}:of"  # one slot

Position = tuple[int, str]


class AllBatches:
    """The two keys. An entry may be there without a record, for a moment or until the record would be deleted."""

    def __init__(self, links: Links) -> None:
        self._links = links

    async def add(self, batch_id: str, account: str, at: int) -> None:
        """Enter a batch that is about to be stored; `at` in milliseconds."""
        link = self._links.link(MADE)
        await link.call_repeatable("HSET", OF, batch_id, account)
        await link.call_repeatable("ZADD", MADE, at, batch_id)

    async def remove(self, ids: Sequence[str | bytes]) -> None:
        """Forget batches whose records are gone."""
        if ids:
            link = self._links.link(MADE)
            await link.call_repeatable("ZREM", MADE, *ids)
            await link.call_repeatable("HDEL", OF, *ids)

    async def account_of(self, batch_id: str) -> str:
        """The account of a batch; empty if there is none of that id."""
        found = await self._links.link(MADE).call_repeatable("HGET", OF, batch_id)
        return found.decode() if found is not None else ""

    async def newest(self, before: Position | None, most: int) -> list[tuple[Position, str]]:
        """The newest batches behind `before`, at most so many, with their accounts."""
        link = self._links.link(MADE)
        places = await newest(link, MADE, before, most)
        accounts = await link.call_repeatable("HMGET", OF, *(id_ for _, id_ in places)) if places else []
        return [(place, of.decode() if of else "") for place, of in zip(places, accounts, strict=True)]


async def newest(link: RedisLink, name: str, before: Position | None, most: int) -> list[Position]:
    """The members of a sorted set behind `before`, from the highest score down; fewer than `most` at the end.

    Scores are milliseconds, so few members have that of `before`.
    """
    start, found = 0, list[Position]()
    while len(found) < most:
        highest = before[0] if before is not None else "+inf"
        args = (highest, "-inf", "WITHSCORES", "LIMIT", start, most)
        answer = await link.call_repeatable("ZREVRANGEBYSCORE", name, *args)
        pairs = members_with_scores(answer)
        start += len(pairs)
        positions = [(int(score), member.decode()) for member, score in pairs]
        found += [one for one in positions if before is None or one < before]
        if len(pairs) < most:
            break
    return found[:most]


def members_with_scores(answer: Sequence[Any]) -> list[tuple[bytes, float]]:
    """The answer of a command WITHSCORES: a list of pairs, or a flat one in the older protocol."""
    pairs = answer if answer and isinstance(answer[0], list) else zip(answer[::2], answer[1::2], strict=True)
    return [(member, float(score)) for member, score in pairs]
