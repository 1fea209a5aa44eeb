"""Counters in the store, which all processes share. What is refused is not counted, and leaves nothing there.

Names in the store are HMACs: it has no e-mail addresses of people.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Sequence

from gateway.store.command import Script
from gateway.store.links import Links

_ADD = Script(  # 0, or in milliseconds when the counter ends that is at its limit
    "if tonumber(redis.call('GET', KEYS[1]) or '0') >= tonumber(ARGV[1]) then "
    "return math.max(redis.call('PEXPIRETIME', KEYS[1]), 1) end "
    "redis.call('INCRBY', KEYS[1], 1) redis.call('EXPIRE', KEYS[1], ARGV[2], 'NX') return 0"
)
_TAKE_BACK = Script(  # a counter with nothing in it does not stay
    "if tonumber(redis.call('GET', KEYS[1]) or '0') > 1 then redis.call('INCRBY', KEYS[1], -1) "
    "else redis.call('DEL', KEYS[1]) end return 0"
)


class StoredCounts:
    """Counters by kind and text. `key` hides the texts."""

    def __init__(self, links: Links, key: bytes) -> None:
        self._links = links
        self._key = key

    def name(self, kind: str, text: str) -> str:
        """The counter of a text."""
        return f"signin:{kind}:{hmac.digest(self._key, text.encode(), 'sha256')[:16].hex()}"

    async def add(self, name: str, most: int, window: int) -> float:
        """Count one; the result is 0.0. At `most`, nothing is counted: the seconds until the counter ends.

        A counter ends `window` seconds after the first one.
        """
        ends = int(await self._links.link(name).eval(_ADD, [name], [most, window]))
        return max(ends / 1000 - time.time(), 1.0) if ends else 0.0

    async def add_all(self, counters: Sequence[tuple[str, int]], window: int) -> float:
        """`add` in each of these names with their limits, or in none."""
        for number, (name, most) in enumerate(counters):
            if ends := await self.add(name, most, window):
                for counted, _ in counters[:number]:
                    await self.take_back(counted)
                return ends
        return 0.0

    async def take_back(self, name: str) -> None:
        """Count one less, unless the counter has ended."""
        await self._links.link(name).eval(_TAKE_BACK, [name], [])

    async def forget(self, name: str) -> None:
        """End a counter."""
        await self._links.link(name).call("DEL", name)
