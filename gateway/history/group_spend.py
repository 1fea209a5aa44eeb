"""Counts what the accounts of each group were charged, from the lines that are imported.

The group of an account is the one that it is in now, or was in at most `KNOWN_FOR` seconds ago. A line is counted when
it is in the database, at most once; calls do not wait for that. What a killed importer had not reported is not counted.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from gateway.amounts import NANO
from gateway.errors import GatewayError
from gateway.history.new_lines import NewLines
from gateway.history.rollups import CALLS
from gateway.ledger.gather_all import outcomes_bounded
from gateway.metrics import UNKNOWN, Metrics
from gateway.store.links import Links, slot

KNOWN_FOR = 10.0  # seconds until groups are read again
MOST_KNOWN = 20_000  # accounts whose groups are in memory


class GroupSpend:
    """The counter of one importer."""

    def __init__(self, links: Links, metrics: Metrics) -> None:
        self._links = links
        self._metrics = metrics
        self._groups: dict[str, str] = {}
        self._forget_at = 0.0  # monotonic

    async def learn_groups(self, accounts: Collection[str]) -> None:
        """Read the groups of the accounts whose lines come next, unless they were read just before."""
        if time.monotonic() >= self._forget_at or len(self._groups) > MOST_KNOWN:
            self._groups, self._forget_at = {}, time.monotonic() + KNOWN_FOR
        unknown = [account for account in accounts if account not in self._groups]
        reads = (self._links.link(slot(account)).call("HGET", slot(account), "group") for account in unknown)
        found = await outcomes_bounded(reads)
        for account, group in zip(unknown, found, strict=True):
            if isinstance(group, bytes):
                self._groups[account] = group.decode()
            elif isinstance(group, BaseException) and not isinstance(group, GatewayError):
                raise group

    def count(self, batch: Sequence[NewLines]) -> None:
        """Count lines that are in the database now. Money that is given back does not lower the counter."""
        for part in batch:
            charged = -sum(line.amount for line in part.lines if line.kind in CALLS)
            if charged > 0:
                group = self._groups.get(part.start.account, UNKNOWN)
                self._metrics.inc("gateway_group_spend", (group,), charged / NANO)
