"""Names in a set of the store, in an order: a page costs what it shows, however many names there are.

A set of more than `SMALL` names has a sorted set beside it, its order, with each name under the score 0. The first
read that needs the order makes it, in portions, so sets of older versions get theirs, too; from then on every new name
is put into both at once. An order is used only if it has as many names as the set. If a version without orders added
some, or if the order is being made, it is completed first. A backup has no orders: they are made again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

from msgspec import Struct

from gateway.errors import StoreUnavailable
from gateway.ledger.gather_all import batches
from gateway.ledger.paging import scan_pages, scan_scores, scan_set
from gateway.ledger.scripts import load_script
from gateway.store.connection import RedisReplyError
from gateway.store.link import RedisLink

SMALL = 500  # names that are read and sorted: one page of SSCAN
PAGE = 500  # names per read: some 0.2 ms of Redis's time
TRIES = 2  # of completing an order, before everything is read
_ADD = load_script("add_ordered")


class OrderedSet(Struct, frozen=True):
    """One set and its order. `written` gives a name as the order has it, `read` is the inverse."""

    link: RedisLink
    name: str
    order: str
    written: Callable[[str], str] = str
    read: Callable[[str], str] = str

    async def add(self, name: str) -> None:
        """Put a name into the set."""
        await self.link.eval(_ADD, [self.name, self.order], [name, self.written(name)])

    async def remove(self, name: str) -> None:
        """Take a name out of the set; RedisReplyError if the store's user may not."""
        await self.link.call("ZREM", self.order, self.written(name))
        await self.link.call("SREM", self.name, name)

    async def count(self) -> int:
        """How many names there are."""
        return int(await self.link.call("SCARD", self.name))

    async def page(self, *, after: str = "", limit: int = PAGE, backwards: bool = False) -> list[str]:
        """At most `limit` names behind `after`, which need not exist; `backwards`: the last names first."""
        async for some in self.pages(after=after, size=limit, backwards=backwards):
            return some
        return []

    async def pages(self, *, after: str = "", size: int = PAGE, backwards: bool = False) -> AsyncIterator[list[str]]:
        """All names behind `after`, `size` at a time; a name that is added meanwhile is in it or not."""
        if not await self._has_order():
            names = sorted(await scan_set(self.link, self.name), key=self.written, reverse=backwards)
            for some in batches(self._behind(names, after, backwards=backwards), size):
                yield some
            return
        while some := await self._read(after, size, backwards=backwards):
            yield some
            after = some[-1]

    async def near(self, name: str, most: int) -> list[str]:
        """At most `most` names beside a name, from both sides of it; all names of a small set."""
        if not await self._has_order():
            names = sorted(await scan_set(self.link, self.name), key=self.written)
            before = sum(1 for one in names if self.written(one) <= self.written(name))
            start = max(0, before - most // 2)
            return names[start : start + most]
        return [*await self._read(name, most // 2, backwards=True), *await self._read(name, most // 2, backwards=False)]

    def _behind(self, names: list[str], after: str, *, backwards: bool) -> list[str]:
        if not after:
            return names
        edge = self.written(after)
        return [name for name in names if (self.written(name) < edge if backwards else self.written(name) > edge)]

    async def _read(self, after: str, limit: int, *, backwards: bool) -> list[str]:
        edge, end = f"({self.written(after)}" if after else "-+"[backwards], "+-"[backwards]
        rev = ("REV",) if backwards else ()
        found = await self.link.call("ZRANGE", self.order, edge, end, "BYLEX", *rev, "LIMIT", 0, limit)
        return [self.read(name.decode()) for name in found]

    async def differences(self) -> list[str]:
        """The names that only the set or only the order has; none if the order is not used as it is.

        The order's own name if it is no sorted set.
        """
        try:
            if await self.link.call("ZCARD", self.order) <= SMALL or not await self._is_complete():
                return []
        except RedisReplyError:
            return [self.order]
        names = await scan_set(self.link, self.name)
        ordered = {self.read(name.decode()) for name in await scan_scores(self.link, self.order)}
        return [name for name in sorted(names ^ ordered) if await self._differs(name)]

    async def _differs(self, name: str) -> bool:
        """Whether only one of the two has the name: not if it was added between two reads."""
        call = self.link.call
        member, score = await asyncio.gather(
            call("SISMEMBER", self.name, name), call("ZSCORE", self.order, self.written(name))
        )
        return bool(member) != (score is not None)

    async def _has_order(self) -> bool:
        """Whether the order can be used; it is completed first if need be."""
        call = self.link.call
        for _ in range(TRIES):
            names = await self.count()
            if names <= SMALL:
                return False
            ordered = await call("ZCARD", self.order)
            if names == ordered:
                return True
            try:
                if ordered > names:
                    await call("DEL", self.order)
                await self._complete()
            except (RedisReplyError, StoreUnavailable):  # a full store, or one that only reads
                return False
        return await self._is_complete()

    async def _is_complete(self) -> bool:
        names, ordered = await asyncio.gather(self.count(), self.link.call("ZCARD", self.order))
        return SMALL < names == int(ordered)

    async def _complete(self) -> None:
        """Put every name of the set into the order. Names that are added meanwhile go into both."""
        async for page in scan_pages(self.link, "SSCAN", self.name, count=PAGE):
            words: list[str | int] = []
            for name in page:
                words += (0, self.written(name.decode()))
            await self.link.call("ZADD", self.order, *words)
