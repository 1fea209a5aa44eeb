"""Counts what the accounts of each group were charged, from the lines that are imported.

The group of an account is the one that it is in now. A line is counted once it is in the database, so not while calls
wait for anything, and at most once; what a killed importer had not reported is not counted.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from gateway.amounts import NANO
from gateway.errors import GatewayError
from gateway.history.new_lines import NewLines
from gateway.history.rollups import CALLS
from gateway.ledger.scripts import Links, slot
from gateway.metrics import UNKNOWN, Metrics


class GroupSpend:
    """The counter of one importer."""

    def __init__(self, links: Links, metrics: Metrics) -> None:
        self._links = links
        self._metrics = metrics
        self._groups: dict[str, str] = {}  # of the accounts of one transaction

    async def learn_groups(self, accounts: Collection[str]) -> None:
        """Read the groups of the accounts whose lines come next."""
        reads = (self._links.link(slot(account)).call("HGET", slot(account), "group") for account in accounts)
        found = await asyncio.gather(*reads, return_exceptions=True)
        self._groups = {
            account: group.decode() for account, group in zip(accounts, found, strict=True) if isinstance(group, bytes)
        }
        for failure in found:
            if isinstance(failure, BaseException) and not isinstance(failure, GatewayError):
                raise failure

    def count(self, batch: Sequence[NewLines]) -> None:
        """Count lines that are in the database now. Money that is given back does not lower the counter."""
        for part in batch:
            charged = -sum(line.amount for line in part.lines if line.kind in CALLS)
            if charged > 0:
                group = self._groups.get(part.start.account, UNKNOWN)
                self._metrics.inc("gateway_group_spend", (group,), charged / NANO)
