"""The part of the audit that computes again what calls were charged, from the lines' usage and the stored price tables.

Rules:

- `cost ID`: what a call was charged and what could not be collected is the cost of its usage at its price.
- `price_table VERSION`: the price table that a line names is stored and readable.

Lines are given in order, from the store's stream or from the database.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec import Struct

from gateway.amounts import parse_factor
from gateway.billing.price import Price
from gateway.billing.usage import Usage
from gateway.ledger.line import LedgerLine
from gateway.ledger.price_tables import read_prices
from gateway.store.links import Links

FREE = Price()  # of a call whose line names no version: a free model has no table


class CallMeta(Struct, frozen=True):
    """The part of a line's meta that its cost depends on; lines of older versions have no endpoint."""

    key: str = ""
    price: str = ""
    usage: Usage | None = None
    clamped: bool = False
    endpoint: str = ""
    service_tier: str = ""
    price_factor: str = "1"


_decoder = msgspec.json.Decoder(CallMeta)
_NOTHING = CallMeta()


def call_meta(line: LedgerLine) -> CallMeta:
    """The meta of a line; ValueError if it is unreadable."""
    meta = _decoder.decode(line.meta_text) if line.meta_text else _NOTHING
    parse_factor(meta.price_factor)
    return meta


class PriceBook:
    """The stored price tables that lines name, each read once."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._known: dict[str, Price | None] = {"": FREE}

    async def read(self, versions: Iterable[str]) -> None:
        """Read the tables that are not known yet.

        Accounts are audited at the same time: a version is known once its table was read, and not before. Two readers
        may read the same table.
        """
        new = [version for version in set(versions) if version not in self._known]
        if new:
            found = await read_prices(self._links, new)
            self._known |= {version: found.get(version) for version in new}

    def knows(self, version: str) -> bool:
        """Whether the table was looked for."""
        return version in self._known

    def get(self, version: str) -> Price | None:
        """The table; None if it is not stored. KeyError if it was not looked for."""
        return self._known[version]


class CostCheck:
    """Computes the calls of one account again. `finish` completes the counts and the findings.

    `continued`: older lines of the account are checked elsewhere. A reclaim among them is counted there with its
    amendment.
    """

    def __init__(self, prices: PriceBook, *, continued: bool = False) -> None:
        self.recomputed = 0
        self.not_recomputed = 0
        self.findings: list[tuple[str, object, object]] = []  # rule, expected, found
        self.unread: set[str] = set()  # versions that the price book has not looked for: the check is incomplete
        self._prices = prices
        self._continued = continued
        self._without_table: dict[str, int] = {}  # lines by the version of their price, which is not stored
        self._reclaimed: dict[str, int] = {}  # cost of reclaimed calls, as far as it was known

    def add(self, line: LedgerLine, meta: CallMeta) -> None:
        """Take the next line."""
        if line.kind == "reclaim":
            self._reclaimed[line.request_id] = line.uncollected - line.amount
        elif line.kind == "use":
            self._check(line, meta, line.uncollected - line.amount)
        elif line.kind == "adj" and meta.key and not self.amend(line, meta) and not self._continued:
            self.not_recomputed += 1

    def amend(self, line: LedgerLine, meta: CallMeta) -> bool:
        """Take a line if it is the amendment of a call that was reclaimed in a line before; whether it is."""
        if line.kind != "adj" or not meta.key or line.request_id not in self._reclaimed:
            return False
        self._check(line, meta, self._reclaimed.pop(line.request_id) + line.uncollected - line.amount)
        return True

    def finish(self) -> None:
        """Count the reclaimed calls without an amendment, and name the missing tables."""
        self.not_recomputed += len(self._reclaimed)
        for version, lines in self._without_table.items():
            self._mismatch(f"price_table {version}", "a stored price table", f"none, and {lines} lines name it")

    def _check(self, line: LedgerLine, meta: CallMeta, owed: int) -> None:
        if meta.usage is None or meta.clamped or not meta.endpoint:
            self.not_recomputed += 1
            return
        if not self._prices.knows(meta.price):
            self.unread.add(meta.price)
            return
        price = self._prices.get(meta.price)
        if price is None:
            self.not_recomputed += 1
            self._without_table[meta.price] = self._without_table.get(meta.price, 0) + 1
            return
        self.recomputed += 1
        cost = 0
        if meta.usage != Usage(requests=0):
            price = price.times(parse_factor(meta.price_factor))
            cost = price.cost(meta.usage, service_tier=meta.service_tier or None)
        if cost != owed:
            self._mismatch(f"cost {line.request_id}", cost, owed)

    def _mismatch(self, rule: str, expected: object, found: object) -> None:
        self.findings.append((rule, expected, found))
