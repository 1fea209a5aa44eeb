"""A store that a bench has filled is one that grew: its audit is clean."""

from __future__ import annotations

from pathlib import Path

from benchmarks.populated import Population, populate
from tests.world import PEPPER, OpenWorld


async def test_filled_store_has_accounts_keys_and_lines_and_a_clean_audit(world: OpenWorld, valkey: Path) -> None:
    async with world() as w:
        keys = await populate(valkey, PEPPER, Population(accounts=3, keys=2, lines=20))
        report = await w.ledger.audit()
        assert (report.mismatches, report.accounts, report.lines) == ([], 3, 3 + 20)
        assert (len(keys), len(await w.keys.list())) == (3, 4)
