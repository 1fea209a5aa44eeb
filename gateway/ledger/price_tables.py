"""Price tables in the store: each under its version, so that every ledger line can be computed again.

The Redis hash `prices` has a field per version, whose value is the JSON of a `Price`. A version is a digest of the
price's amounts, so a stored table is never changed. A free model has no version and no table.

::

    tables = PriceTables(store)
    await tables.publish(prices)      # before the first hold at one of them
    await tables.ensure(price)        # before the first hold at the own price of an account
    tables.publish_again()            # after a reconnect: the new server may lack them
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import msgspec

from gateway.billing.price import Price
from gateway.errors import GatewayError
from gateway.ledger.gather_all import batches, gather_bounded
from gateway.log import gateway_log
from gateway.store.links import Links

PRICES = "prices"
AT_ONCE = 500  # tables in one round trip: some 500 KB, and under a millisecond of Redis's time
OWN = 20_000  # tables of own prices that a worker keeps to store them again
RETRY = 0.5  # seconds between two attempts while the store is unreachable

_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Price)


async def store_prices(links: Links, prices: Iterable[Price]) -> None:
    """Store the tables that are not stored yet; StoreUnavailable if the store did not confirm all of them."""
    tables = {price.version: price for price in prices if price.version}
    stored = (
        links.link(PRICES).call_repeatable("HSETNX", PRICES, version, _encoder.encode(price))
        for version, price in tables.items()
    )
    await gather_bounded(stored, AT_ONCE)


async def read_prices(links: Links, versions: Iterable[str]) -> dict[str, Price]:
    """The stored tables by version; a version that is not stored, or whose table is unreadable, is left out."""
    wanted, found = [version for version in dict.fromkeys(versions) if version], {}
    for page in batches(wanted, AT_ONCE):
        for version, text in zip(page, await links.link(PRICES).call("HMGET", PRICES, *page), strict=True):
            price = _decode(text)
            if price is not None and price.version == version:
                found[version] = price
    return found


def _decode(text: bytes | None) -> Price | None:
    try:
        return _decoder.decode(text) if text is not None else None
    except (ValueError, RecursionError):
        return None


class PriceTables:
    """Keeps the tables of the catalogue in use in the store, also when the store was unreachable or was replaced."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._prices: list[Price] = []
        self._own: dict[str, Price] = {}  # of accounts, by version
        self._stored: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    async def publish(self, prices: Iterable[Price]) -> None:
        """Store those of these tables that are not stored; if the store is unreachable, when it answers again."""
        self._prices = list(prices)
        self._stored &= {price.version for price in self._all()}
        if not await self._store(price for price in self._prices if price.version not in self._stored):
            self.publish_again()

    async def ensure(self, price: Price) -> None:
        """Store the table of an account's own price if it is not stored; StoreUnavailable without a confirmation."""
        version = price.version
        if not version or version in self._stored:
            return
        if len(self._own) >= OWN:
            oldest = next(iter(self._own))
            del self._own[oldest]
            self._stored.discard(oldest)
        await store_prices(self._links, [price])
        self._own[version] = price
        self._stored.add(version)

    def publish_again(self) -> None:
        """Store the tables in the background, because a server may lack them."""
        if (self._prices or self._own) and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._store_until_done())

    async def close(self) -> None:
        """Stop to try."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _store_until_done(self) -> None:
        while True:
            if await self._store(self._all()):
                return
            await asyncio.sleep(RETRY)

    def _all(self) -> list[Price]:
        return [*self._prices, *self._own.values()]

    async def _store(self, prices: Iterable[Price]) -> bool:
        prices = list(prices)
        try:
            await store_prices(self._links, prices)
        except GatewayError as error:
            # Calls are served without: only the audit then cannot compute their lines again.
            gateway_log.warning("price tables are not stored yet: %s", error)
            return False
        self._stored.update(price.version for price in prices)
        return True
