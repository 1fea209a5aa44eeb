"""Small storms for every run; tests/chaos/chaos_ledger.py has them in full size."""

import asyncio
from pathlib import Path

import pytest

from tests.ledger import storms

pytestmark = pytest.mark.slow


async def test_balance_for_twenty_admits_twenty_of_two_hundred_at_once(world):
    for _ in range(2):
        assert await storms.overdraw(world, asks=200, fits=20) == 20


async def test_ledger_of_mixed_calls_equals_prices_times_usage_to_the_nano_unit(world):
    fates = await storms.mixed_calls(world, calls=400)
    assert len(fates) == 7
    assert fates.total() == 400


@pytest.mark.holds("operations/processes.md#what-happens-when-a-process-ends-7")
def test_killed_store_loses_nothing_and_its_truncated_file_is_restored_from_the_journal(tmp_path: Path):
    async def storm() -> None:
        writers = storms.Writers(tmp_path)
        await writers.storm(kills=2, between=100)
        assert writers.settled > 50
        assert writers.deaths == 2
        assert await writers.cut(times=2) == 2

    asyncio.run(storm())
